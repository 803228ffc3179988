"""Kubernetes: a webhook that shrinks new pods, an extender that scores nodes, and feedback, resizes and manifests.

The webhook and the extender are small applications beside the service. The webhook calls the service with
`modelserve.client`; the extender needs no service. If anything fails or takes too long, the pod is created as
requested. `api.py` alone calls the API server, `serving.py` alone imports the service's server. Started by `taut kube`.
"""
