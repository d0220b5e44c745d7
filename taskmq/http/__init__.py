"""The client: a taskmq server's HTTP API in Python, for programs without a broker, store or app.

    client.jobs.submit(...) -> operations (path) -> exchange (request) -> connection (httpx, retries)
        -> exchange (response, or the error it means) -> a struct of `taskmq.api`

`AsyncClient` is written by hand (`aio`). `Client` (`blocking`) is generated from it by `python -m
tests.house.blocking_client`, so both have the same features. Needs `pip install 'taskmq[client]'`.
"""

from taskmq.http._generated.client import Client
from taskmq.http.aio.client import AsyncClient
from taskmq.http.events import LiveEvent
from taskmq.http.retries import Retries

__all__ = ["AsyncClient", "Client", "LiveEvent", "Retries"]
