"""The server's outermost layer: undeclared methods and encoded slashes in paths."""

import logging
from collections.abc import Iterator
from itertools import product
from typing import Any
from urllib.parse import quote

import pytest
from litestar import Litestar, get
from litestar.testing import TestClient

from taskmq import TaskMQ
from taskmq.server import ServerSettings, build
from taskmq.server.access import authorise
from taskmq.server.problems import NO_PATH, Problem, problem_response
from tests.unit.app_kit import new_url
from tests.unit.server.kit import Site, ask_all

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
_STREAMS = {"/api/v1/events"}


def _paths(site: Site) -> Iterator[tuple[str, set[str]]]:
    """Return the paths of all routes, with plain parameters, and their methods."""
    for route in site.served.litestar.routes:
        path = route.path
        for name, parameter in route.path_parameters.items():
            path = path.replace(f"{{{parameter.full}}}", f"absent-{name}")
        yield path, set(route.methods)


def test_no_method_of_any_path_is_an_error_of_the_server(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    plan = [
        (method, path, method in methods or (method == "HEAD" and "GET" in methods), headers)
        for path, methods in _paths(site)
        for method in _METHODS
        if not (path in _STREAMS and method == "GET")
        for headers in ({}, {"Authorization": "Bearer all-admin"})
    ]
    with caplog.at_level(logging.INFO):
        answers = ask_all(site.client, ({"method": row[0], "url": row[1], "headers": row[3]} for row in plan))

    # Not available without a store, a provider or a management API of the broker.
    assert [
        f"{method} {path}: {answer.status_code} {answer.text[:80]}"
        for (method, path, is_known, _), answer in zip(plan, answers, strict=True)
        if answer.status_code in {500, 502} or (answer.status_code == 405) == is_known
    ] == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_options_lists_the_methods_of_a_path_for_every_caller(site: Site) -> None:
    for path, methods in _paths(site):
        answer = site.client.options(path, headers={"Origin": "http://evil.test"}, params={"any": "thing"})

        allowed = set(answer.headers["allow"].split(", "))
        assert (answer.status_code, answer.content) == (204, b"")
        assert allowed == methods | ({"HEAD"} if "GET" in methods else set())
        assert not any(name.startswith("access-control") for name in answer.headers)
    assert site.client.options("/api/v1/nothing").status_code == 404


def test_head_is_answered_like_get_without_a_body(site: Site) -> None:
    site.submit()
    paths = [
        "/", "/ui/", "/api/docs", "/api/openapi.json", "/api/v1/health/live", "/api/v1/health/ready", "/api/v1/jobs",
        "/api/v1/jobs/order-17", "/api/v1/jobs/absent", "/api/v1/nothing",
    ]  # fmt: skip
    for path in paths:
        headers = {"Authorization": "Bearer acme-admin"}
        got = site.client.get(path, headers=headers, follow_redirects=False)
        head = site.client.head(path, headers=headers, follow_redirects=False)

        assert (head.status_code, head.content) == (got.status_code, b""), path
        assert head.headers["content-type"] == got.headers["content-type"], path


def test_head_of_a_stream_ends(site: Site) -> None:
    answer = site.client.head("/api/v1/events", headers={"Authorization": "Bearer acme-admin"})

    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")


def test_a_wrong_method_is_refused_with_the_valid_ones_of_the_path(site: Site) -> None:
    answer = site("PUT", "/health/live")

    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "OPTIONS"}


def test_a_route_without_a_permission_is_not_served() -> None:
    litestar = build(TaskMQ(new_url()), settings=ServerSettings()).litestar

    undeclared = [
        route.path
        for route in litestar.routes
        for handler in getattr(route, "route_handlers", ())
        if "permission" not in handler.opt
    ]

    assert undeclared == []
    assert not any("schema" in route.path for route in litestar.routes)


def test_a_handler_without_a_permission_is_not_found(caplog: pytest.LogCaptureFixture) -> None:
    @get("/forgotten")
    async def forgotten() -> str:
        return "secret"

    handlers: Any = dict.fromkeys((Exception, Problem), problem_response)
    app = Litestar(
        [forgotten], guards=[authorise], exception_handlers=handlers, openapi_config=None, logging_config=None
    )
    with TestClient(app) as client:
        answer = client.get("/forgotten")

    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert caplog.records == []


@pytest.mark.parametrize("name", ["2027/01", "/", "a/", "/a", "a//b", "../x", "50%", "ä b", "?x#y", ";a=b"])
def test_a_name_in_a_path_is_one_segment_whatever_it_contains(site: Site, name: str) -> None:
    site.submit(job_id=name)
    path = f"/jobs/{quote(name, safe='')}"

    assert site("GET", path).json()["job_id"] == name
    assert site("GET", f"{path}/explain").status_code == 200
    assert site("DELETE", path).status_code == 200


def test_a_link_to_the_next_page_repeats_the_requested_path(site: Site) -> None:
    for number in range(3):
        site.submit(job_id=f"job-{number}")

    answer = site("GET", "/jobs?limit=2")
    following = site.client.get(answer.links["next"]["url"], headers={"Authorization": "Bearer acme-admin"})

    assert answer.links["next"]["url"].startswith("/api/v1/jobs?limit=2&cursor=")
    assert [job["job_id"] for job in following.json()["items"]] == ["job-0"]


_HOSTILE = ["2027/01", "/", "..", "%2F", "a b", "?x=1", "#", "ünï/cödé", "a;b=c", "\\", "+"]


def test_every_path_parameter_accepts_any_name(site: Site) -> None:
    """Each is answered by its handler: no name leads to another path, or to none."""
    plan: list[tuple[str, str, str]] = []
    requests: list[dict[str, Any]] = []
    for route in site.served.litestar.routes:
        names = [one.full for one in route.path_parameters.values()]
        if not names or "static" in route.path:
            continue
        for method, name in product(route.methods - {"OPTIONS"}, _HOSTILE):
            path = route.path
            for one in names:
                path = path.replace(f"{{{one}}}", _quote_name(name))
            plan.append((method, route.path, name))
            requests.append({"method": method, "url": path, "headers": {"Authorization": "Bearer all-admin"}})

    answers = ask_all(site.client, requests)

    assert [
        f"{method} {path} with {name!r}: {answer.status_code} {answer.text[:90]}"
        for (method, path, name), answer in zip(plan, answers, strict=True)
        if answer.status_code in {405, 500} or NO_PATH in answer.text
    ] == []


def _quote_name(name: str) -> str:
    return name.replace(".", "%2E") if name == ".." else quote(name, safe="")
