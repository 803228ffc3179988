"""Jobs with due dates on nodes of several types, at the lowest cost: tardiness and the energy of switched-on nodes.

The accounting of a finished simulation is not here: see `pipelines.simulation.energy.accounting`.
`decision.decide` takes one decision; called by the simulation of costs and by the experiments in `pipelines`.
"""
