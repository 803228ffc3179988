"""Cost study: run jobs with due dates at low cost of tardiness and energy; compare with simple methods and a bound."""
