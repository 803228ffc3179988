"""Jobs with due dates on several sites in different grid zones; decisions are in `scheduler_core.planning.sites`."""
