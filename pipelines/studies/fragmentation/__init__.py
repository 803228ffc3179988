"""Study of fragmentation-aware placement (FGD): clusters of shared GPUs filled up, against the published figures."""
