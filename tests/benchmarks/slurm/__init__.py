"""The connection to Slurm, measured on a real slurmctld."""
