"""Each feature of stored jobs works without Redis; those of sent jobs that need it are refused by name.

RabbitMQ, a scheduler and a worker are real processes. docs/lanes.md has a table of the same features.
"""

import asyncio
import signal
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import Upgradable
from taskmq_sql import open_job_store
from tests.faults.field import Commands
from tests.features.feature import Feature
from tests.features.sent import BROKER_ALONE, NEEDING_STATE
from tests.features.shop import build_app
from tests.features.stored import STORED

pytestmark = [pytest.mark.rabbitmq, pytest.mark.real_time]

_SHOP: Final = """
import os
from pathlib import Path
from tests.features.shop import build_app

app = build_app(
    os.environ["FAULTS_URL"],
    store=os.environ["FAULTS_STORE"] or None,
    state=os.environ["FAULTS_STATE"] or None,
    results_at=Path("results").absolute(),
)
"""


@pytest.mark.timeout(300)
def test_stored_jobs_have_every_feature_with_postgresql_alone(
    tmp_path: Path, amqp_url: str, job_store_url: str
) -> None:
    _check_features(tmp_path, amqp_url, job_store_url, [*STORED, *BROKER_ALONE, *NEEDING_STATE])


@pytest.mark.nightly(
    "tests/integration/test_features_without_redis.py::test_stored_jobs_have_every_feature_with_postgresql_alone"
)
@pytest.mark.timeout(300)
def test_stored_jobs_have_every_feature_with_sqlite_alone(tmp_path: Path, amqp_url: str) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"

    async def upgrade() -> None:
        store = open_job_store(url, BrokerOptions(name="features"))
        assert isinstance(store, Upgradable)
        await store.upgrade()
        await store.aclose()

    asyncio.run(upgrade())

    _check_features(tmp_path, amqp_url, url, STORED)


@pytest.mark.timeout(300)
def test_stored_jobs_have_their_features_while_redis_refuses_connections(
    tmp_path: Path, amqp_url: str, job_store_url: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    features = [each for each in STORED if not each.is_shared]

    _check_features(tmp_path, amqp_url, job_store_url, features, state=f"redis://127.0.0.1:{port}/0")


def _check_features(folder: Path, url: str, store: str, features: Iterable[Feature], *, state: str = "") -> None:
    """Check all features at the same time; the failures name their features."""

    async def check() -> None:
        tried = list(features)
        async with build_app(url, store=store, state=state or None, results_at=folder / "results") as app:
            found = await asyncio.gather(*(each.check(app, folder) for each in tried), return_exceptions=True)
        failures: list[BaseException] = []
        for feature, error in zip(tried, found, strict=True):
            if error is not None:
                error.add_note(feature.name)
                failures.append(error)
        if failures:
            raise BaseExceptionGroup("features that do not work", failures)

    with Commands(folder, _SHOP, url=url, store=store, state=state) as start:
        processes = [start("scheduler", "scheduler", "jobs:app"), start("worker", "worker", "jobs:app", "-c", "40")]
        asyncio.run(check())
        for process in processes:
            process.signal(signal.SIGTERM)
            assert process.wait(60) == 0, process.log[-4000:]
        if not state:
            assert all("redis" not in process.log.lower() for process in processes)
