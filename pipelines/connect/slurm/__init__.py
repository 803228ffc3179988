"""Slurm: advice at submission, history and feedback from its accounting, and a summary of one job.

Slurm's programs are run by `commands.py`; nothing else here starts a process.
"""
