"""Compiled loops (numba) of the energy package, a folder for each; nothing else of it imports numba.

Importing this imports numba only with the folder that is asked for.
"""
