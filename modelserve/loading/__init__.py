"""Loading of models: mirror them from the registry, load, check and warm them, then swap the snapshot in one step.

No call is answered here. Called by `modelserve.service`; the serving snapshot is read by `modelserve.calls`.
"""
