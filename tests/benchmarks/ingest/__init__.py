"""Reading whole traces, measured: time against DuckDB and pandas, memory of child processes, the size of the lake."""
