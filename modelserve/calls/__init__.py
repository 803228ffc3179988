"""The calls of the service, one kind a file: check the body, make the answer from one snapshot, log it for replay.

No HTTP here: the routes are in `modelserve.api`. Called by the service and, for replays, by the commands.
"""
