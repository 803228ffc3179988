"""The server: processes, sockets, signals and time limits around the application of `modelserve.api`."""

from modelserve.server.supervisor import serve

__all__ = ["serve"]
