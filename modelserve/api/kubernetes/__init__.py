"""The Kubernetes interface: an admission webhook that shrinks pods, and an extender that scores nodes.

Each is a small application of its own beside the service. The webhook asks the service through `modelserve.client`; the
extender needs no service. If anything fails or takes too long, the pod is created as requested. No model is loaded
here. Served by `modelserve.server.kubernetes`; started by `taut kube`.
"""
