"""The server: processes, sockets, signals and time limits around the application of `modelserve.api`.

`supervisor` is the parent process, which imports neither uvicorn nor a model. `worker` is a child process that answers
calls. `connection` limits the time and size of one client's requests. Called by `taut serve`.
"""

from modelserve.server.supervisor import serve

__all__ = ["serve"]
