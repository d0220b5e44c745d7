"""Two servers behind a load balancer are replaced in turn under load: no request fails, and no job is created twice.

`$TASKMQ_TEST_SERVER_RATE` requests a second (default 200) for at least `$TASKMQ_TEST_SERVER_SECONDS` (default 15).
"""

import asyncio
import json
import os
import re
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.access import IdentityAdministration, PasswordHasher
from taskmq.contracts.identity import Actor
from tests.cli.kit import Started
from tests.faults.balancer import Balancer, exchange
from tests.servers import eventually
from tests.servers.ports import PortLease

pytestmark = pytest.mark.campaign

RATE = int(os.environ.get("TASKMQ_TEST_SERVER_RATE", "200"))
SECONDS = int(os.environ.get("TASKMQ_TEST_SERVER_SECONDS", "15"))
LANES = 16
_PATIENCE = timedelta(seconds=60)
_SHOP = """\
from taskmq import TaskMQ

app = TaskMQ()


@app.task(name="data_processing", queue="work")
def data_processing(key: str = "") -> None: ...
"""


class Load:
    """Submits jobs and reads them back, at a fixed rate, from its own thread.

    Attributes:
        answers: number of answers by status, and by kind of error.
        submitted: jobs with an answered submission.
    """

    def __init__(self, port: int, token: str) -> None:
        self.answers: Counter[str] = Counter()
        self.submitted: int = 0
        self._port = port
        self._head = f"HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop; return when every request is answered."""
        self._is_over.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        await asyncio.gather(*(self._lane(number) for number in range(LANES)))

    async def _lane(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        began, turn = loop.time() + number / RATE, 0
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        while not self._is_over.is_set():
            await asyncio.sleep(max(began + turn * LANES / RATE - loop.time(), 0))
            name = f"{number}-{turn // 2}"
            try:
                status, _ = await exchange(reader, writer, self._request(name, is_new=turn % 2 == 0))
            except (OSError, asyncio.IncompleteReadError) as error:
                self.answers[type(error).__name__] += 1
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            else:
                self.answers[str(status)] += 1
                self.submitted += status == 201
            turn += 1
        writer.close()

    def _request(self, name: str, *, is_new: bool) -> bytes:
        if not is_new:
            return f"GET /api/v1/jobs/{name} {self._head}\r\n".encode()
        body = json.dumps({"job_type": "data_processing", "job_id": name, "payload": {"key": "value"}})
        more = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return f"POST /api/v1/jobs {self._head}{more}{body}".encode()


def _token(store: str) -> str:
    async def make() -> str:
        async with TaskMQ("memory://token", store=store) as app:
            hasher = PasswordHasher(time_cost=1, memory_cost=64)
            administration = IdentityAdministration(app.sessions.store().identity, hasher=hasher)
            user = await administration.add_first_admin("root", "correct horse battery", by=Actor())
            return (await administration.add_token(user.id, "test", by=Actor())).secret

    return asyncio.run(make())


@pytest.mark.timeout(300 + 2 * SECONDS)
def test_servers_are_replaced_under_load_and_no_request_fails(tmp_path: Path, job_store_url: str) -> None:
    (tmp_path / "shop.py").write_text(_SHOP)
    environment = {"TASKMQ_URL": f"local://{tmp_path}/broker", "TASKMQ_STORE": job_store_url}
    token = _token(job_store_url)

    with ExitStack() as stack:
        ports = stack.enter_context(PortLease(2)).ports
        balancer = stack.enter_context(Balancer(ports))

        def start(port: int) -> Started:
            options = ("--port", str(port), "--drain", "2", "--rate", "0")
            started = stack.enter_context(Started(tmp_path, "server", "shop:app", *options, env=environment))
            eventually(lambda: port in balancer.ready, f"the server at {port} is ready", within=_PATIENCE)
            return started

        servers = {port: start(port) for port in ports}
        load, began, replaced = Load(balancer.port, token), time.monotonic(), 0
        while time.monotonic() - began < SECONDS or replaced < 2:
            port = ports[replaced % 2]
            assert servers[port].signal_and_wait(signal.SIGTERM) == 0
            assert "Traceback" not in servers[port].said
            eventually(lambda: port not in balancer.ready, "the balancer sees that it is gone")  # noqa: B023
            servers[port] = start(port)
            replaced += 1
        load.stop()
        seconds = time.monotonic() - began
        counted = json.loads(re.split(rb"\r\n\r\n", asyncio.run(_count(balancer.port, token)))[1])

    total = load.answers.total()
    print(f"{replaced} servers replaced under {total / seconds:.0f} requests/s for {seconds:.0f} s: {load.answers}")
    assert set(load.answers) == {"200", "201"}
    assert balancer.refused == 0
    assert counted["count"] == min(load.submitted, 10_001)


async def _count(port: int, token: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = f"GET /api/v1/jobs/count HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    _, answer = await exchange(reader, writer, request)
    writer.close()
    return answer
