"""Study of fragmentation-aware placement (FGD) on clusters of shared GPUs, compared with the published results."""
