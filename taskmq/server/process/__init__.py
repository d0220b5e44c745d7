"""The server's process: uvicorn around the application, with limits that clients cannot exceed.

connection -> Connections (number, time limits) -> proxies (trusted X-Forwarded-For) -> Edge -> ...
"""

from taskmq.server.process.server_process import ServerProcess

__all__ = ["ServerProcess"]
