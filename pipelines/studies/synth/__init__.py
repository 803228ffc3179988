"""Study that compares the synthetic PAI trace with the statistics published about the real one."""
