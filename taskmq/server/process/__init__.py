"""The server's process: uvicorn around the application, within bounds that a client cannot exceed.

connection -> Connections (how many, how long) -> proxies (whose X-Forwarded-For counts) -> Edge -> ...
"""

from taskmq.server.process.server_process import ServerProcess

__all__ = ["ServerProcess"]
