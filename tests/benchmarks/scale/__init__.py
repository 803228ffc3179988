"""How ingest, training and answers grow with the number of jobs."""
