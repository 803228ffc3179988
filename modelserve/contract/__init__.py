"""The contract of the service: a pydantic model of every request and response, and the rules for using feedback.

This module imports nothing, so that `modelserve.contract.fields` can be imported quickly.
"""
