"""The servers of the test session; `tests.servers` explains their sources."""

import asyncio
import functools
import gc
import inspect
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import coverage
import pytest

from tests import ignored_signals, measurement, parts, processes, virtual_time
from tests.coroutines import run_in_real_time, time_within
from tests.servers import PostgreSQL, RabbitMQ, Redis, StartRabbitMQ


def pytest_configure(config: pytest.Config) -> None:
    ignored_signals.hide_from_children()
    if (count := config.getoption("processes")) is not None:
        config.pluginmanager.register(processes.Distribution(count))
    if coverage.Coverage.current() is not None:
        is_pure = config.getoption("part") == "pure"
        config.pluginmanager.register(measurement.Measurement(parts.pure_modules() if is_pure else ()))


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    # Ten thousand tests are created here and none is freed: the collector would scan them again and again.
    gc.disable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", choices=parts.PARTS, help="run this part of the gate, see tests/parts.py")
    parser.addoption("--processes", type=int, metavar="N", help="test processes, see tests/processes.py")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    part: str | None = config.getoption("part")
    return True if part is not None and parts.is_left_out(collection_path, part) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (part := config.getoption("part")) is not None:
        chosen, left_out = list[pytest.Item](), list[pytest.Item]()
        for item in items:
            (chosen if parts.belongs(item, part) else left_out).append(item)
        items[:] = chosen
        config.hook.pytest_deselected(items=left_out)
    # Slow tests come first: no process is left with a long test when the others have ended.
    if config.getoption("processes") is not None:
        items.sort(key=lambda item: _time_limit(item) or 0, reverse=True)


def _time_limit(item: pytest.Item) -> float | None:
    found = item.get_closest_marker("timeout")
    return None if found is None else float(found.args[0] if found.args else found.kwargs["timeout"])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Run async tests in virtual time, or, if they are marked, in real time."""
    if pyfuncitem.get_closest_marker("real_time") is None:
        run = virtual_time.run
    else:
        config = pyfuncitem.config
        within = time_within(_time_limit(pyfuncitem), config.getoption("timeout"), config.getini("timeout"))
        run = functools.partial(run_in_real_time, within=within)
    if (properties := getattr(pyfuncitem.obj, "hypothesis", None)) is not None:
        if inspect.iscoroutinefunction(properties.inner_test):
            properties.inner_test = _plain(properties.inner_test, run)
    elif inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = _plain(pyfuncitem.obj, run)


def _plain(test: Callable[..., Coroutine[Any, Any, None]], run: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(test)
    def plain(*args: Any, **arguments: Any) -> None:
        run(test(*args, **arguments))

    return plain


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.freeze()
    # By default each 70,000 new objects lead to a search through all that are not frozen: a tenth of the tests' time.
    gc.set_threshold(10_000)
    gc.enable()


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[RabbitMQ]:
    """Start one node for the session: never stop or kill it, use `own_rabbitmq` instead."""
    with RabbitMQ(_rabbitmq_version()) as server:
        yield server


@pytest.fixture
def fresh_amqp_url(rabbitmq_server: RabbitMQ) -> Iterator[str]:
    """Create a vhost for a test of the objects that all apps share."""
    url = rabbitmq_server.create_vhost()
    yield url
    rabbitmq_server.delete_vhost(url)


@pytest.fixture(scope="session")
def _used_vhosts() -> list[str]:
    return []


@pytest.fixture
def amqp_url(rabbitmq_server: RabbitMQ, _used_vhosts: list[str]) -> Iterator[str]:
    """Return an exclusive vhost; the objects that all apps share may exist in it, and are empty."""
    url = _used_vhosts.pop() if _used_vhosts else rabbitmq_server.create_vhost()
    yield url
    if rabbitmq_server.clear_vhost(url):
        _used_vhosts.append(url)
    else:
        rabbitmq_server.delete_vhost(url)


@pytest.fixture(scope="session")
def shared_amqp_url(rabbitmq_server: RabbitMQ) -> str:
    """Return one vhost for all tests that use unique names and leave no queue behind."""
    return rabbitmq_server.create_vhost()


@pytest.fixture
def own_rabbitmq() -> Iterator[StartRabbitMQ]:
    """Start a node for tests that stop, kill or configure their broker."""
    with ExitStack() as servers:

        def start(version: str | None = None, *, config: Mapping[str, str] | None = None) -> RabbitMQ:
            return servers.enter_context(RabbitMQ(version or _rabbitmq_version(), config=config))

        yield start


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: Redis) -> str:
    """Return an empty database."""
    redis_server.flush()
    return redis_server.url


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgreSQL]:
    with PostgreSQL() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgreSQL) -> Iterator[str]:
    """Create a database for the test."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(scope="session")
def job_store_template(postgres_server: PostgreSQL) -> str:
    from taskmq_sql.migrations import upgrade

    url = postgres_server.create_database()
    asyncio.run(upgrade(url))
    return url


@pytest.fixture
def job_store_url(postgres_server: PostgreSQL, job_store_template: str) -> Iterator[str]:
    """Create a database for the test with the tables of the job store."""
    url = postgres_server.create_database(template=job_store_template)
    yield url
    postgres_server.drop_database(url)


def _rabbitmq_version() -> str | None:
    return os.environ.get("TASKMQ_TEST_RABBITMQ")
