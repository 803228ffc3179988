"""Study of elastic jobs under a carbon budget: arms, bounds and exact optima."""
