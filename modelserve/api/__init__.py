"""The HTTP interface of the service: routes, and the gate that checks and logs every call.

A route passes the request to the service (`modelserve.service`) and returns its result.
"""
