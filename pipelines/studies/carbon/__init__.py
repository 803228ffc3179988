"""Carbon study: elastic jobs under energy or carbon budgets, compared with simpler schedulers and a bound."""
