"""The server within other applications: below a prefix, with their lifespan and their users."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient as StarletteClient
from litestar import Litestar, get
from litestar import asgi as mounted
from litestar.testing import TestClient as LitestarClient
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection

from taskmq import TaskMQ
from taskmq.errors import InvalidSetting, NotAuthenticated
from taskmq.model.identity import Identity, Membership, Role
from taskmq.server import MountedServer, asgi
from tests.nightly import nightly_except
from tests.unit.app_kit import new_file_store, new_url
from tests.unit.server.kit import define


async def _identify_all(connection: Any) -> Identity:
    return Identity(user_id="7", user="ann", memberships=(Membership("acme", Role.OPERATOR),), via="host")


async def _by_host(connection: Any) -> Identity:
    """Return the caller identified by the host's middleware."""
    user = connection.scope["user"]
    if not user.is_authenticated:
        raise NotAuthenticated("sign in")
    roles = (Membership("acme", Role.OPERATOR),)
    return Identity(user_id=user.display_name, user=user.display_name, memberships=roles, via="host")


class _ByHeader(AuthenticationBackend):
    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser] | None:
        name = conn.headers.get("x-user")
        return None if name is None else (AuthCredentials(), SimpleUser(name))


def _app(folder: Path) -> TaskMQ:
    app = TaskMQ(new_url(), store=new_file_store(folder))
    define(app)
    return app


@contextmanager
def _fastapi(served: MountedServer) -> Iterator[Any]:
    host = FastAPI(lifespan=served.lifespan)

    @host.get("/own")
    def own() -> str:
        return "mine"

    host.mount("/taskmq", served)
    with StarletteClient(host) as client:
        yield client


@contextmanager
def _starlette(served: MountedServer) -> Iterator[Any]:
    host = Starlette(lifespan=served.lifespan)
    host.add_route("/own", lambda _: _text("mine"))
    host.mount("/taskmq", served)
    with StarletteClient(host) as client:
        yield client


def _text(text: str) -> Any:
    from starlette.responses import JSONResponse

    return JSONResponse(text)


@contextmanager
def _litestar(served: MountedServer) -> Iterator[Any]:
    @get("/own")
    async def own() -> str:
        return '"mine"'

    host = Litestar(
        [own, mounted("/taskmq", is_mount=True, copy_scope=True)(served.__call__)],
        lifespan=[served.lifespan],
        # Its own configuration would handle the records of all later tests.
        logging_config=None,
    )
    with LitestarClient(host) as client:
        yield client


@contextmanager
def _serve_beside(served: MountedServer) -> Iterator[Any]:
    with StarletteClient(served) as client:
        yield client


_HOSTS = {"FastAPI": _fastapi, "Starlette": _starlette, "Litestar": _litestar, "any other": _serve_beside}


@pytest.mark.parametrize(
    "name",
    nightly_except(
        {"FastAPI"},
        _HOSTS,
        pytest.mark.nightly(
            "tests/unit/server/test_mount.py::test_a_host_serves_its_own_pages_and_those_of_taskmq_below_a_prefix"
        ),
    ),
)
def test_a_host_serves_its_own_pages_and_those_of_taskmq_below_a_prefix(name: str, tmp_path: Path) -> None:
    app = _app(tmp_path)
    other = FastAPI()
    other.get("/own")(lambda: "mine")
    prefix, beside = ("/taskmq", other) if name == "any other" else ("/taskmq" if name == "Litestar" else "", None)
    served = asgi(app, prefix=prefix, identify=_identify_all, beside=beside)

    with _HOSTS[name](served) as client:
        assert client.get("/own").json() == "mine"
        assert client.get("/nowhere").status_code == 404
        assert client.get("/taskmq/nowhere").json()["code"] == "not_found"
        made = client.post("/taskmq/api/v1/jobs", json={"job_type": "report", "delay": "1h", "job_id": "one"})
        assert (made.status_code, made.headers["location"][:20]) == (201, "/taskmq/api/v1/jobs/")
        assert client.get(made.headers["location"]).json()["owner"] == "ann"
        client.post("/taskmq/api/v1/jobs", json={"job_type": "report", "delay": "1h"})
        listed = client.get("/taskmq/api/v1/jobs?limit=1")
        (link,) = [part.strip("<>") for part in listed.headers["link"].split(";")[:1]]
        assert [job["job_id"] for job in client.get(link).json()["items"]] == ["one"]
        assert client.get("/taskmq/api/openapi.json").json()["servers"] == [{"url": "/taskmq"}]


def test_users_of_the_host_may_be_those_of_the_server(tmp_path: Path) -> None:
    served = asgi(_app(tmp_path), identify=_by_host)
    host = Starlette(lifespan=served.lifespan, middleware=[Middleware(AuthenticationMiddleware, backend=_ByHeader())])
    host.mount("/taskmq", served)

    with StarletteClient(host) as client:
        assert client.get("/taskmq/api/v1/auth/me", headers={"x-user": "bob"}).json()["user"] == "bob"
        assert client.get("/taskmq/api/v1/auth/me").json()["code"] == "not_signed_in"


def test_resources_of_the_server_are_closed_with_the_lifespan_of_the_host(tmp_path: Path) -> None:
    app = _app(tmp_path)
    served = asgi(app, identify=_identify_all)

    async def is_open_meanwhile_and_closed_after() -> tuple[int, bool]:
        async with served.lifespan(), httpx.AsyncClient(transport=httpx.ASGITransport(served)) as client:
            ready = await client.get("http://here/api/v1/health/ready")
            opened = app.sessions.current()
        async with app:
            return ready.status_code, app.sessions.current() is not opened

    assert asyncio.run(is_open_meanwhile_and_closed_after()) == (200, True)


def test_without_a_lifespan_the_server_connects_on_first_use(tmp_path: Path) -> None:
    app = _app(tmp_path)
    host = Starlette()
    host.mount("/taskmq", asgi(app, identify=_identify_all, read_only=True))

    async def ask() -> list[int]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(host), base_url="http://here") as client:
            read = await client.get("/taskmq/api/v1/jobs")
            changed = await client.post("/taskmq/api/v1/jobs", json={"job_type": "report"})
            await app.aclose()
            return [read.status_code, changed.status_code]

    assert asyncio.run(ask()) == [200, 403]


@pytest.mark.parametrize("prefix", ["", "taskmq", "/taskmq/"])
def test_an_invalid_prefix_is_refused(prefix: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="/taskmq"):
        asgi(_app(tmp_path), prefix=prefix, beside=FastAPI())
