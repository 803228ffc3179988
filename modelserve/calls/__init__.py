"""What callers ask and get, one noun a file: a body checked, an answer made from one snapshot, logged to be made again.

No HTTP here: routes are `modelserve.api`'s. Called by the routes and, for replays, by the commands.
"""
