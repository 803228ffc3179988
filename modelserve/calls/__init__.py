"""The calls of the service, one module per kind of call: each computes a response from the context of the call.

No HTTP here: the routes are in `modelserve.api`.
"""
