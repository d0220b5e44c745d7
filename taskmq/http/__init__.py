"""The client: a taskmq server's HTTP API in Python, for programs that have neither broker nor store nor app.

    client.jobs.submit(...) -> operations (which path) -> exchange (request) -> connection (httpx, retries)
        -> exchange (answer, or the error that it means) -> a struct of `taskmq.api`

`AsyncClient` is written by hand (`aio`), and `Client` (`blocking`) is made of it by
`python -m tests.house.blocking_client`, so both can do the same. Needs `pip install 'taskmq[client]'`.
"""

from taskmq.http._generated.client import Client
from taskmq.http.aio.client import AsyncClient
from taskmq.http.events import LiveEvent
from taskmq.http.retries import Retries

__all__ = ["AsyncClient", "Client", "LiveEvent", "Retries"]
