"""Study of the synthetic PAI trace: how it compares with the published one."""
