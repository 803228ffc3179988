"""Connections to live clusters, one folder for each system: ask, observe and change what a scheduler is given.

What is learnt and decided is elsewhere; the service is called over `modelserve.client` only.
"""
