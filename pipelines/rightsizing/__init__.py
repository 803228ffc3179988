"""Right-sizing: what each recurring group of jobs requests and uses, and how much smaller its requests could be."""
