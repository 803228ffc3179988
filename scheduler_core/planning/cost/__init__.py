"""Schedule jobs with due dates on nodes of several types at the lowest cost of tardiness and energy.

`decision.decide` takes one decision; `pipelines.simulation.energy.accounting` computes the energy of a finished
simulation. Called by `pipelines.studies.cost`.
"""
