"""Schedule jobs with due dates on nodes of several types at the lowest cost of tardiness and energy."""
