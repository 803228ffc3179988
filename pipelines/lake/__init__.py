"""The lake: load published traces or a user's files into canonical tables, quarantine bad rows, and read the tables."""
