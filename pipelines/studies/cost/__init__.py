"""Study of due dates at the lowest energy cost: arms, bounds and exact optima."""
