"""Connect to live clusters, one folder for each system: read the cluster, and change what its scheduler is given.

Models and decisions are elsewhere; this room reaches the service only through `modelserve.client`.
"""
