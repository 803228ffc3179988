"""One static page about traces and their models: charts and tables that open without a network.

Statistics are `pipelines.statistics`', drawings `pipelines.report.charts`'; here they are chosen, put in order and
written. Called by `taut report`.
"""
