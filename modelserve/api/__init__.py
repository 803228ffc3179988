"""The service over HTTP: routes by noun, and the gate in front of them.

No answer is worked out here: every route hands what arrived to `modelserve` and what comes back to the caller.
Called by `modelserve.server`, which opens the service and serves the application.
"""
