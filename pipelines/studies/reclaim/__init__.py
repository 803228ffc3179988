"""Study of reclaiming while jobs run: what running jobs leave unused is given to waiting jobs."""
