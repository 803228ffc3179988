"""The contract of the service: every request and every answer as one pydantic model each, and the rules of feedback.

No call, model or server here; nothing is imported on the way to `modelserve.contract.fields`, which stays light.
Used by `modelserve.client`, by the service, which answers in these shapes, and by the commands.
"""
