"""The server: processes, sockets, signals and time limits around the application of `modelserve.api`.

No route and no service logic here; the parent process imports neither uvicorn nor a model. `supervisor` runs the
processes, `worker` is one of them, `connection` bounds one client. Called by `taut serve`.
"""

from modelserve.server.supervisor import serve

__all__ = ["serve"]
