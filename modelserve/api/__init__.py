"""The service over HTTP: routes by noun, and the gate in front of them.

No answer is computed here: a route passes the request to the service, and the result to the caller. Called by
`modelserve.server`, which opens the service and serves the application.
"""
