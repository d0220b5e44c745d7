"""The health port, queried over real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from taskmq.client.plugins import open_metrics
from taskmq.durable.health import Address, Health, serving
from taskmq.errors import InvalidOption
from taskmq.model.telemetry.metrics import Count, Snapshot
from taskmq.supervisor.status import SupervisorStatus

pytestmark = pytest.mark.real_time


@dataclass
class Truth:
    """The health that a test sets."""

    silent: list[str] = field(default_factory=list[str])
    reason: str | None = None

    def health(self) -> Health:
        return Health(
            silent=lambda: self.silent,
            not_ready=lambda: self.reason,
            status=lambda: STATUS,
            open_metrics=lambda: open_metrics(
                lambda: Snapshot("1", [Count("t", "q", {"succeeded": 3})], [], 1, {}, {})
            ),
        )


STATUS = SupervisorStatus(
    version="1",
    pid=1,
    app="a:b",
    started=0,
    is_stopping=False,
    least=1,
    most=1,
    wanted=1,
    slots=[],
    leaving=[],
    ends={},
    replaced=0,
    jobs=3,
    queues={},
)


@asynccontextmanager
async def _serve_health(truth: Truth) -> AsyncIterator[Address]:
    async with serving(Address(), truth.health()) as address:
        yield address


async def _ask(address: Address, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(request)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


async def _get(address: Address, path: str) -> tuple[int, dict[str, object]]:
    head, _, body = (await _ask(address, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


async def test_live_and_ready_give_the_reason_for_a_failure() -> None:
    truth = Truth()
    async with _serve_health(truth) as address:
        assert await _get(address, "/live") == (200, {"live": True})
        assert await _get(address, "/ready?probe=1") == (200, {"ready": True})
        truth.silent, truth.reason = ["process 7 has been silent for 91 s"], "stopping"
        assert await _get(address, "/live") == (503, {"live": False, "reason": truth.silent[0]})
        assert await _get(address, "/ready") == (503, {"ready": False, "reason": "stopping"})
        assert (await _get(address, "/status"))[1]["jobs"] == 3


async def test_metrics_come_from_the_installed_package() -> None:
    async with _serve_health(Truth()) as address:
        answer = await _ask(address, b"GET /metrics HTTP/1.1\r\nAccept: text/plain\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")
        assert b'taskmq_jobs_total{queue="q",state="succeeded",task="t"} 3.0' in answer


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"POST /ready HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"GET\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"GET /" + b"x" * 100_000 + b"\r\n\r\n", b""),
    ],
)
async def test_other_paths_list_the_endpoints_or_are_not_found(request_: bytes, answer: bytes) -> None:
    async with _serve_health(Truth()) as address:
        try:
            assert (await _ask(address, request_)).partition(b"\r\n")[0] == answer
        except ConnectionResetError:
            assert not answer
        assert (await _get(address, "/live"))[0] == 200


async def test_head_returns_get_without_the_body() -> None:
    async with _serve_health(Truth()) as address:
        head, _, body = (await _ask(address, b"HEAD /ready HTTP/1.1\r\n\r\n")).partition(b"\r\n\r\n")
        assert b"HTTP/1.1 200 OK" in head
        assert b"Content-Length: 15" in head
        assert body == b""


async def test_a_silent_client_does_not_delay_others() -> None:
    async with _serve_health(Truth()) as address:
        silent = [await asyncio.open_connection(address.host, address.port) for _ in range(20)]
        assert (await _get(address, "/ready"))[0] == 200
        for reader, writer in silent:
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()


async def test_a_port_in_use_is_refused_with_its_address() -> None:
    async with _serve_health(Truth()) as address:
        with pytest.raises(InvalidOption, match=f"health cannot be served at {address}"):
            async with serving(address, Truth().health()):
                pass
