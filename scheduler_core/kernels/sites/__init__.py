"""Compiled decisions on where and when jobs run among sites."""
