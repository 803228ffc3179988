"""Study of fragmentation-aware placement (FGD): the published figures, and a cluster whose pods depart."""
