"""Requests that are repeated or not, and answers that do not come from a taskmq server."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taskmq.api.definitions import DefinitionBody
from taskmq.errors import (
    InvalidOption,
    LoginThrottled,
    NotAuthenticated,
    NotPermitted,
    RequestRefused,
    ServerUnavailable,
    StoreUnavailable,
    TaskMQError,
)
from taskmq.http import Client, LiveEvent, Retries
from taskmq.http.events import EventLines
from taskmq.http.exchange import error_of, prepare
from taskmq.server.edge import Edge, restoring_slashes

_JOB = {"status": "submitted", "job_id": "j", "id": "i", "state": "queued", "version": 1, "is_new": True}


class _Server:
    """A stand-in for a network: it returns the configured answers one after the other."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers: Iterator[httpx.Response | Exception] = iter(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, **more: Any) -> Client:
        http = httpx.Client(transport=httpx.MockTransport(self))
        options: dict[str, Any] = {"retries": Retries(base=0), "insecure": True} | more
        return Client("http://server", token="t", http=http, **options)


def _problem(status: int, code: str, detail: str = "", **headers: str) -> httpx.Response:
    body = {"type": "", "title": "A title", "status": status, "code": code, "detail": detail, "request_id": "r1"}
    return httpx.Response(status, json=body, headers=headers)


_GONE = httpx.ReadError("connection reset")
_NOT_THERE = httpx.ConnectError("refused")
_REPORT = DefinitionBody(task="report")
_CALLS: list[tuple[str, Callable[[Client], Any], bool]] = [
    ("a read", lambda client: client.jobs.get("j"), True),
    ("a submission", lambda client: client.jobs.submit("report"), True),
    ("a submission with an id", lambda client: client.jobs.submit("report", job_id="a b"), True),
    ("a retry", lambda client: client.jobs.retry("j"), True),
    ("a pause", lambda client: client.queues.pause("work"), True),
    ("a cancel", lambda client: client.jobs.cancel("j"), False),
    ("a purge", lambda client: client.queues.purge("work"), False),
    ("a run", lambda client: client.schedules.run("nightly"), False),
    (
        "a definition with a version",
        lambda client: client.definitions.put("d", DefinitionBody(task="report"), version=1),
        False,
    ),
]


@pytest.mark.parametrize(("ask", "repeats"), [call[1:] for call in _CALLS], ids=[call[0] for call in _CALLS])
def test_only_idempotent_calls_are_sent_again(ask: Any, repeats: bool) -> None:
    server = _Server(*[_GONE] * 4)

    with pytest.raises(ServerUnavailable) as found:
        ask(server.client())

    assert len(server.requests) == (4 if repeats else 1)
    assert not found.value.is_certain
    assert "http://server" in str(found.value)


@pytest.mark.parametrize("ask", [call[1] for call in _CALLS], ids=[call[0] for call in _CALLS])
def test_a_call_that_was_certainly_not_executed_is_sent_again(ask: Any) -> None:
    server = _Server(_NOT_THERE, _problem(429, "too_many_requests", **{"Retry-After": "0"}), *[_NOT_THERE] * 2)

    with pytest.raises(ServerUnavailable, match="no server answers at http://server") as found:
        ask(server.client())

    assert len(server.requests) == 4
    assert found.value.is_certain
    assert isinstance(found.value.__cause__, httpx.ConnectError)


def test_all_attempts_of_a_submission_share_one_idempotency_key() -> None:
    server = _Server(_GONE, _problem(503, "store_unavailable"), httpx.Response(201, json=_JOB))

    assert server.client().jobs.submit("report").id == "i"

    keys = {request.headers["idempotency-key"] for request in server.requests}
    assert (len(server.requests), len(keys)) == (3, 1)
    assert len({request.content for request in server.requests}) == 1


def test_a_long_retry_after_header_ends_the_attempts() -> None:
    server = _Server(_problem(429, "login_throttled", "wait", **{"Retry-After": "60"}))

    with pytest.raises(LoginThrottled):
        server.client().account.login("ann", "wrong")

    assert len(server.requests) == 1


def test_calls_are_not_repeated_if_one_attempt_is_the_limit() -> None:
    server = _Server(
        _problem(503, "store_unavailable", "the job store is unreachable; the change may have been applied")
    )

    with pytest.raises(StoreUnavailable) as found:
        server.client(retries=Retries(attempts=1)).jobs.get("j")

    assert not found.value.is_certain


@pytest.mark.parametrize(
    ("status", "content", "kind"),
    [
        (502, b"<html>bad gateway</html>", ServerUnavailable),
        (404, b"<html>not found</html>", RequestRefused),
        (418, b'{"type": "", "title": "T", "status": 418, "code": "teapot"}', RequestRefused),
        (401, b'{"type": "", "title": "T", "status": 401, "code": "other"}', NotAuthenticated),
        (400, b"\xff\xfe", RequestRefused),
    ],
)
def test_an_unexpected_answer_is_an_error_too(status: int, content: bytes, kind: type[TaskMQError]) -> None:
    error = error_of(status, content, operation="getJob", server="http://server")

    assert type(error) is kind
    if isinstance(error, RequestRefused):
        assert error.status == status


def test_an_unreadable_answer_is_an_error() -> None:
    server = _Server(httpx.Response(200, text="hello"))

    with pytest.raises(ServerUnavailable, match="returned an unexpected response"):
        server.client().jobs.get("j")


def test_an_unreachable_server_is_neither_live_nor_ready() -> None:
    client = _Server(*[_NOT_THERE] * 8).client()

    assert not client.is_live()
    assert not client.is_ready()


@pytest.mark.parametrize("options", [{"attempts": 0}, {"base": -1}, {"cap": -1}])
def test_invalid_retry_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="retries"):
        Retries(**options)


def test_waits_grow_up_to_the_cap_and_respect_retry_after() -> None:
    retries = Retries(attempts=9, base=1.0, cap=4.0)

    waits = [retries.wait(attempt, retry_after=None) for attempt in range(1, 9)]

    assert all(wait is not None and 0 <= wait <= min(2**number, 4) for number, wait in enumerate(waits))
    assert retries.wait(1, retry_after=4.0) == 4.0
    assert retries.wait(1, retry_after=4.1) is None
    assert retries.wait(9, retry_after=None) is None


def _events(text: str) -> list[LiveEvent]:
    lines = EventLines()
    return [event for line in text.split("\n") if (event := lines.add(line)) is not None]


def test_lines_of_a_stream_become_events() -> None:
    found = _events('retry: 3000\n\n: here\n\nid: h-1\nevent: job\ndata: {"a":\ndata:1}\n\nevent: gap\ndata: {}\n\n')

    assert found == [LiveEvent(id="h-1", kind="job", data={"a": 1}), LiveEvent(id="", kind="gap", data={})]


def test_an_interrupted_stream_resumes_at_its_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    first, second = (f'id: h-{number}\nevent: job\ndata: {{"n": {number}}}\n\n' for number in (1, 2))
    server = _Server(
        httpx.Response(200, text=first), _GONE, httpx.Response(200, text=second), _problem(403, "not_allowed")
    )

    events = server.client().events(kinds="dead")

    assert [next(events).data["n"] for _ in range(2)] == [1, 2]
    with pytest.raises(NotPermitted):
        next(events)
    assert [request.headers.get("last-event-id") for request in server.requests] == [None, "h-1", "h-1", "h-2"]


def test_a_stream_that_cannot_resume_ends_with_the_server() -> None:
    server = _Server(httpx.Response(200, text='event: job\ndata: {"n": 1}\n\n'), _GONE)
    client = server.client()

    assert [event.data for event in client.events(reconnect=False)] == [{"n": 1}]
    with pytest.raises(ServerUnavailable):
        list(client.events(reconnect=False))


@given(st.text(st.characters(codec="utf-8"), min_size=1))
@example("..")
@example(".")
@example("/")
@example("a/../b")
@example("%2F")
@example("?#")
def test_every_name_survives_as_one_path_segment(name: str) -> None:
    """httpx sends it, uvicorn reads it, and the server's edge and router parse it."""
    request = prepare(
        "getJobHistory", path={"job_id": name}, query={}, body=None, tenant=None, version=None, key=None, headers={}
    )
    raw = httpx.URL(f"http://x{request.path}").raw_path
    seen: list[dict[str, str]] = []

    async def handler(scope: Any, receive: Any, send: Any) -> None:
        before, found, after = scope["path"].removeprefix("/api/v1/").split("/")
        assert (before, after) == ("jobs", "history")
        scope["path_params"] = {"job_id": found}
        await restoring_slashes(keep)(scope, receive, send)

    async def keep(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["path_params"])

    edge: Any = Edge(handler, on_stop=lambda: None, on_response=lambda *_: None)
    scope: dict[str, Any] = {
        "type": "http", "method": "GET", "path": unquote(raw.decode("ascii")), "raw_path": raw, "headers": [],
        "client": None, "scheme": "http", "root_path": "",
    }  # fmt: skip
    asyncio.run(edge(scope, None, None))

    assert seen == [{"job_id": name}]
