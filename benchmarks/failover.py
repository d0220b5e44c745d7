"""`python -m benchmarks.failover`: time from killing each part (-9) to the next success.

    a leader         holds a lock of 5 s in Redis and in PostgreSQL; another process waits for it
    a scheduler      one of two, while jobs arrive at a steady rate for the partitions of both
    a server         one of two behind a balancer that checks each ten times a second; then the other one, restarted
    Redis, RabbitMQ  one server of each, restarted at once on its data
    PostgreSQL       the same; `tests/docs/test_disaster_recovery_page.py` measures the promotion of a standby

In production, add the time to detect the failure and to restart or replace the server.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final

from benchmarks.job_store.stage import Servers, Stage
from benchmarks.job_store.takeover import scheduler_killed
from benchmarks.server.clients import WebClient, WebError, get
from taskmq import TaskMQ, TaskMQError
from taskmq.access import IdentityAdministration, PasswordHasher
from taskmq.contracts.identity import Actor
from taskmq.contracts.jobs import Upgradable
from tests.faults.balancer import Balancer
from tests.servers import PostgreSQL, RabbitMQ, Redis
from tests.servers.ports import PortLease
from tests.servers.server import Server

_LEASE: Final = 5
_PACE: Final = 50
_PATIENCE: Final = 120
_SERVER_ERROR: Final = 500
_CALM: Final = 3.0
_EACH: Final = 0.02
_LEADER: Final = """
import asyncio, os
from taskmq import TaskMQ

app = TaskMQ("amqp://nowhere/", state=os.environ.get("LEADER_STATE"), store=os.environ.get("LEADER_STORE"))

async def main():
    async with app.lock("leader", lease=5):
        print("leads", flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


def main() -> int:
    with Redis() as redis, PostgreSQL() as postgres, RabbitMQ() as rabbitmq:
        servers = Servers(postgres, rabbitmq)
        print(f"{'killed':38}{'next success after':>20}")
        with Stage.opened(servers) as stage:
            _row("a leader, by a lock in Redis", _leader({"LEADER_STATE": redis.url}))
            _row("a leader, by a lock in PostgreSQL", _leader({"LEADER_STORE": stage.store}))
            _row("a scheduler, jobs of its partitions", asyncio.run(_scheduler(stage)))
            asyncio.run(_servers(stage))
        asyncio.run(_state(redis))
        asyncio.run(_broker(rabbitmq))
        asyncio.run(_store(postgres))
    return 0


def _row(what: str, seconds: float) -> None:
    print(f"{what:38}{seconds:18.2f} s", flush=True)


def _leader(variables: dict[str, str]) -> float:
    """Kill the leading process and return the seconds until the waiting one leads."""
    leaders = [_start_leader(variables) for _ in range(2)]
    try:
        while (first := _leading(leaders)) is None:
            time.sleep(0.01)
        began = time.monotonic()
        first.kill()
        other = leaders[1 - leaders.index(first)]
        assert other.stdout is not None
        assert other.stdout.readline() == b"leads\n"
        return time.monotonic() - began
    finally:
        for process in leaders:
            process.kill()
            process.wait()


def _start_leader(variables: dict[str, str]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", _LEADER], env={**os.environ, **variables}, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    return process


def _leading(leaders: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes] | None:
    for process in leaders:
        assert process.stdout is not None
        if process.stdout.readline() == b"leads\n":
            # After renewals the leader is killed in the middle of its lease, as on average.
            time.sleep(_LEASE)
            for other in leaders:
                assert other.stdout is not None
                os.set_blocking(other.stdout.fileno(), True)
            return process
    return None


async def _scheduler(stage: Stage) -> float:
    stage.start("scheduler")
    stage.start("scheduler")
    stage.start("worker", "--processes", "1")
    async with stage.app:
        await stage.warm()
        await stage.until_shared()
        found = await scheduler_killed(stage, pace=_PACE)
    assert not found["lost"]
    return found["lease left, s"] + found["taken over after, s"]


async def _servers(stage: Stage) -> None:
    async with stage.app:
        administration = IdentityAdministration(stage.app.sessions.store().identity, hasher=PasswordHasher())
        user = await administration.add_first_admin("root", "correct horse battery", by=Actor())
        request = get(
            "/api/v1/jobs?limit=1", (await administration.add_token(user.id, "failover", by=Actor())).secret
        )
    with PortLease(2) as lease, Balancer(lease.ports) as balancer:
        servers = [stage.start("server", "--port", str(port), "--rate", "0") for port in lease.ports]
        async with asyncio.timeout(_PATIENCE):
            while len(balancer.ready) < len(servers):
                await asyncio.sleep(0.05)
        await _ask(balancer.port, request)
        servers[0].kill()
        _row("a server, one of two", await _answered(balancer.port, request))
        servers[1].kill()
        stage.start("server", "--port", str(lease.ports[1]), "--rate", "0")
        _row("the only server, started again", await _answered(balancer.port, request))


async def _answered(port: int, request: bytes) -> float:
    """Send a request every 20 ms and return the seconds until no request fails any more."""
    loop = asyncio.get_running_loop()
    began = failed = loop.time()

    async def ask(asked: float) -> None:
        nonlocal failed
        if not await _ask(port, request):
            failed = max(failed, asked)

    async with asyncio.timeout(_PATIENCE), asyncio.TaskGroup() as requests:
        while (now := loop.time()) < failed + _CALM:
            requests.create_task(ask(now))
            await asyncio.sleep(_EACH)
    return failed + _EACH - began


async def _ask(port: int, request: bytes) -> bool:
    """Whether the request is answered without an error from the server or the balancer."""
    try:
        client = await WebClient.opened(port)
        try:
            await client.ask(request)
        finally:
            await client.aclose()
    except (OSError, asyncio.IncompleteReadError):
        return False
    except WebError as error:
        if error.status < _SERVER_ERROR:
            raise
        return False
    return True


async def _state(redis: Redis) -> None:
    app = TaskMQ("amqp://nowhere/", state=redis.url)

    async def take() -> None:
        async with app.lock("name", timeout=0):
            pass

    _row("Redis, started again", await _restarted(redis, take))
    await app.aclose()


async def _broker(rabbitmq: RabbitMQ) -> None:
    app = TaskMQ(rabbitmq.create_vhost(), send_timeout=2)
    task = app.task(name="nothing")(_nothing)

    async def send() -> None:
        await task.asend()

    _row("RabbitMQ, one node, started again", await _restarted(rabbitmq, send))
    await app.aclose()


async def _store(postgres: PostgreSQL) -> None:
    app = TaskMQ("amqp://nowhere/", store=postgres.url)
    store = app.sessions.store()
    assert isinstance(store, Upgradable)
    await store.upgrade()

    async def read() -> None:
        await app.jobs.acount()

    _row("PostgreSQL, started again", await _restarted(postgres, read))
    await app.aclose()


async def _restarted(server: Server, call: Callable[[], Awaitable[None]]) -> float:
    """Return the seconds from the kill to the first success of a caller that retries continuously."""
    await call()
    server.kill()
    began = time.monotonic()
    starting = asyncio.create_task(asyncio.to_thread(server.restart))
    has_failed = False
    async with asyncio.timeout(_PATIENCE):
        while True:
            try:
                await call()
                # A success before the first failure reached the server before it died.
                if has_failed:
                    break
            except TaskMQError:
                has_failed = True
            await asyncio.sleep(0.01)
    outage = time.monotonic() - began
    await starting
    return outage


def _nothing() -> None: ...


if __name__ == "__main__":
    sys.exit(main())
