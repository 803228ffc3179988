"""Schedule jobs with due dates on nodes of several types at the lowest cost of tardiness and energy.

`decision.decide` takes one decision. The energy accounts of a finished simulation are in
`pipelines.simulation.energy.accounting`. Called by `pipelines.studies.cost`.
"""
