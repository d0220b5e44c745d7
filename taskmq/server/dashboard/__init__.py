"""The dashboard: files that a browser loads once, and that ask the public API for everything they show.

    /ui -> index.html -> /ui/static/DIGEST/main.js -> /api/v1/...

There is nothing here that a client of one's own could not do. The place in the dashboard is behind the `#` of
its address, so it works below any prefix, whether or not the server knows of it.
"""

from taskmq.server.dashboard.pages import DASHBOARD_HANDLERS

__all__ = ["DASHBOARD_HANDLERS"]
