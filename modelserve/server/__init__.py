"""The server: processes, sockets, signals and time limits around the application of `modelserve.api`.

No route and no service logic here; the parent process imports neither uvicorn nor a model. `supervisor` keeps the
processes, `worker` is one of them, `connection` bounds what one client may hold. Called by `taut serve`.
"""

from modelserve.server.supervisor import serve

__all__ = ["serve"]
