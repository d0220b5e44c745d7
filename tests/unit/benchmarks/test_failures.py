"""Answers accepted by the benchmarks of failures, and the processes they leave behind."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from benchmarks.failover import _ask
from benchmarks.patroni import _Member, _try
from benchmarks.server.clients import WebError, get


def _is_answer(status: str) -> bool:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        writer.close()

    async def main() -> bool:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            return await _ask(server.sockets[0].getsockname()[1], get("/", "token"))

    return asyncio.run(main())


@pytest.mark.parametrize(("status", "expected"), [("200 OK", True), ("502 Bad Gateway", False), ("503 Away", False)])
def test_a_server_error_is_not_an_answer(status: str, expected: bool) -> None:
    assert _is_answer(status) is expected


def test_a_refused_request_is_an_error_of_the_benchmark() -> None:
    with pytest.raises(WebError, match="401"):
        _is_answer("401 Unauthorized")


@pytest.mark.parametrize("error", [OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError])
def test_a_rejected_write_is_retried(error: Any) -> None:
    async def fail() -> None:
        raise error("gone")

    assert asyncio.run(_try(fail)) is False


def test_a_postgres_process_left_behind_by_patroni_is_killed(tmp_path: Path) -> None:
    (tmp_path / "db1").mkdir()
    waits = "print('here', flush=True); input()"
    argv = [sys.executable, "-c", waits, str(tmp_path / "db1")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as left:
        assert left.stdout is not None
        left.stdout.readline()
        (tmp_path / "db1" / "postmaster.pid").write_text(f"{left.pid}\n")
        member = _Member("db1", 1, 2, tmp_path, must_be_synchronous=False, start=lambda: left)

        member.end()
        member.end()

        assert left.wait(40) == -9


def test_a_process_that_reuses_the_pid_of_an_ended_postgres_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "db1").mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (tmp_path / "db1" / "postmaster.pid").write_text(f"{other.pid}\n")

        _Member("db1", 1, 2, tmp_path, must_be_synchronous=False, start=lambda: other).end()

        other.communicate(b"end\n", timeout=10)
        assert other.returncode == 0
