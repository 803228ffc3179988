"""Study of fragmentation-aware placement (FGD): the published figures, departures, and FGD beside shrinking."""
