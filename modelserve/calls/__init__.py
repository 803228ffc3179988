"""The calls of the service, one module per kind of call: compute the response from one snapshot, and log it for replay.

No HTTP here: the routes are in `modelserve.api`. Called by the service and, for replays, by the commands.
"""
