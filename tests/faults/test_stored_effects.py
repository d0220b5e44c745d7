"""Stored jobs with idempotency keys, many of each key, while workers and schedulers are killed and frozen.

RabbitMQ and PostgreSQL, no state. A run asks an external store for its effect, takes its time, and writes it with the
key's fencing token; the store refuses smaller tokens than it has seen. The faults end with 95 % of the jobs: a worker
counts as lost after a minute at a scheduler that never heard it, so schedulers must live that long.

$TASKMQ_TEST_STORED_EFFECT_KEYS   keys (default 40; campaign 1,000)
$TASKMQ_TEST_STORED_EFFECT_JOBS   jobs of each key (default 5; campaign 300)
"""

import asyncio
import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from taskmq import TaskMQ
from taskmq.model.states import JobState
from taskmq_sql.jobs.codes import CODES
from tests.faults.effects import CLIENT, Effects
from tests.faults.field import Commands, Process
from tests.servers.postgres import PostgreSQL

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow, pytest.mark.campaign]

_KEYS: Final = int(os.environ.get("TASKMQ_TEST_STORED_EFFECT_KEYS", "40"))
_COPIES: Final = int(os.environ.get("TASKMQ_TEST_STORED_EFFECT_JOBS", "5"))
_WORKERS: Final = 3
_SCHEDULERS: Final = 2
_LIVE: Final = "select count(*) from taskmq.job"
_ENDED: Final = "select state, count(*) from taskmq.job_history group by state"
# Longer than the lease of a partition, and than it takes until a silent worker counts as dead.
_FROZEN: Final = (6.0, 25.0)
_APP: Final = f"""
import asyncio, os, random
from taskmq import Context, RetryPolicy, TaskMQ
{CLIENT}
app = TaskMQ(os.environ["FAULTS_URL"], store=os.environ["FAULTS_STORE"], name="faults")
store = Store("ledger.sock")

@app.task(name="pay", queue="work", idempotency_key="key", retry=RetryPolicy(max_attempts=20, base="200ms"))
async def pay(context: Context, key: str) -> str:
    run = f"{{context.job_id}}/{{os.getpid()}}"
    if await store.ask("open", key, context.fencing_token, run) == "go":
        await asyncio.sleep(random.uniform(0, 2))
        if await store.ask("write", key, context.fencing_token, run) == "late":
            raise RuntimeError("another run has the key")
    return key
"""


@pytest.fixture
def start(amqp_url: str, job_store_url: str, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    with Commands(tmp_path, _APP, url=amqp_url, store=job_store_url) as started:
        yield started


@pytest.mark.timeout(600 + _KEYS * _COPIES / 20)
def test_each_key_has_one_accepted_effect_whatever_happens_to_workers_and_schedulers(
    start: Callable[..., Process], amqp_url: str, postgres_server: PostgreSQL, job_store_url: str, tmp_path: Path
) -> None:
    faults: Counter[str] = Counter()
    numbers = itertools.count()
    dice = random.Random(_KEYS)

    def start_one(kind: str) -> Process:
        more = ("-c", "16", "--max-crashes", "0") if kind == "worker" else ()
        return start(f"{kind}-{next(numbers)}", kind, "jobs:app", *more)

    running = {
        "worker": [start_one("worker") for _ in range(_WORKERS)],
        "scheduler": [start_one("scheduler") for _ in range(_SCHEDULERS)],
    }

    async def freeze(victim: Process) -> None:
        pids = dict.fromkeys((victim.pid, victim.inner_pid))
        for number, seconds in ((signal.SIGSTOP, dice.uniform(*_FROZEN)), (signal.SIGCONT, 0.0)):
            for pid in pids:
                os.kill(pid, number)
            await asyncio.sleep(seconds)

    async def trouble() -> None:
        while True:
            await asyncio.sleep(dice.uniform(1.0, 3.0))
            kind = "worker" if dice.random() < 0.75 else "scheduler"
            victim = dice.choice(running[kind])
            if victim.has_ended or (kind == "worker" and not victim.consumes()):
                continue
            if dice.random() < 0.5:
                faults[f"{kind}s frozen"] += 1
                await freeze(victim)
            else:
                faults[f"{kind}s killed"] += 1
                running[kind].remove(victim)
                await asyncio.to_thread(victim.kill)
                running[kind].append(start_one(kind))

    async def main() -> None:
        app = TaskMQ(amqp_url, store=job_store_url, name="faults")

        @app.task(name="pay", queue="work", idempotency_key="key")
        async def pay(key: str) -> str:
            return key

        async with app:
            troubling = asyncio.create_task(trouble())
            for _ in range(_COPIES):
                keys = [f"order-{number}" for number in range(_KEYS)]
                dice.shuffle(keys)
                await app.jobs.asubmit_many(pay, [(key,) for key in keys])
            most = _KEYS * _COPIES // 20
            # The store's own count stops early where it would be expensive.
            while live := int(await asyncio.to_thread(postgres_server.sql, _LIVE, url=job_store_url)):
                await asyncio.sleep(1)
                if live <= most:
                    troubling.cancel()
                elif troubling.done():
                    troubling.result()
            troubling.cancel()
            await asyncio.wait({troubling})
            ended = postgres_server.sql(_ENDED, url=job_store_url)
            assert ended == f"{CODES[JobState.SUCCEEDED]}|{_KEYS * _COPIES}"

    began = time.monotonic()
    with Effects(tmp_path / "ledger.sock", is_fenced=True) as effects:
        asyncio.run(main())
        for process in (*running["worker"], *running["scheduler"]):
            process.kill()
    counts = Counter(effects.accepted.values())
    print(
        f"\n{_KEYS:,} keys, {_KEYS * _COPIES:,} jobs: {time.monotonic() - began:.0f} s at load "
        f"{os.getloadavg()[0]:.1f}, {dict(faults)}; {sum(effects.opened.values())} runs, of these {effects.repeated} "
        f"found the effect and {effects.overtaken} overtook another, {effects.late} writes refused; effects accepted "
        f"per key {dict(counts)}"
    )
    assert counts == {1: _KEYS}
