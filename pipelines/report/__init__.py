"""The report: one static page about traces and their models, with charts and tables that open without a network.

Statistics come from `pipelines.statistics`, charts from `report.charts`. Called by `taut report`.
"""
