"""Simulation of shared machines: jobs take what others leave idle, and slow each other down when all want more.

Truth `shared` of a simulation. Importing a module here imports numba.
"""
