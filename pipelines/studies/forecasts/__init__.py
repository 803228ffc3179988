"""The study of run-time forecasts on small clusters: cut a trace into small ones, and judge every answer on each."""
