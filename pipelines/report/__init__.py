"""The report: one static HTML page with charts and tables about traces and their models, readable without a network."""
