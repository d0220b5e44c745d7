"""The dashboard: static files, loaded once by a browser, that read everything from the public API.

    /ui -> index.html -> /ui/static/DIGEST/main.js -> /api/v1/...

Any other client could do the same. The dashboard keeps its location after the `#` of its address, so it works below
any prefix, whether or not the server knows it.
"""

from taskmq.server.dashboard.pages import DASHBOARD_HANDLERS

__all__ = ["DASHBOARD_HANDLERS"]
