"""Kubernetes: manifests of the webhook and the extender, and what the API server reports of pods and nodes.

The webhook and the extender themselves are in `modelserve.api.kubernetes`. The API server is called by `api.py` only.
"""
