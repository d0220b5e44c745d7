import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.stores import State
from taskmq.testing import FakeClock
from taskmq.testing.state_suite import StateSuite
from taskmq_local import forget_memory, open_local_state, open_memory_state
from taskmq_redis import open_state as open_redis_state
from tests.docs.blocks import ROOT
from tests.servers.redis import Redis


class TestMemory(StateSuite):
    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        self.name = uuid.uuid4().hex
        yield
        forget_memory(self.name)

    def open_state(self, name: str = "") -> State:
        return open_memory_state(f"memory://{self.name}", BrokerOptions(name=name))


@pytest.mark.matrix
class TestMemoryByAFakeClock(TestMemory):
    short = 60

    def open_state(self, name: str = "") -> State:
        return open_memory_state(f"memory://{self.name}", BrokerOptions(name=name, clock=self.clock))

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @pytest.fixture(autouse=True)
    def _clock(self) -> None:
        self.clock = FakeClock()


class TestLocal(StateSuite):
    """On a clock of the test: on a busy machine a file may take longer than a short lease."""

    short = 60

    @pytest.fixture(autouse=True)
    def _server(self, tmp_path: Path) -> None:
        self.url = f"local://{tmp_path}/queue"
        self.clock = FakeClock()

    def open_state(self, name: str = "") -> State:
        return open_local_state(self.url, BrokerOptions(name=name, clock=self.clock))

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)


class TestRedis(StateSuite):
    # On the server's clock, which no test can stop: leases must outlast a slow machine's calls.
    short = 1.5

    @pytest.fixture(autouse=True)
    def _server(self, redis_url: str) -> None:
        self.url = redis_url

    def open_state(self, name: str = "") -> State:
        return open_redis_state(self.url, BrokerOptions(name=name))


@pytest.mark.matrix
class TestRedisUser(TestRedis):
    """The documented user of the state page, with only the permissions that a state needs."""

    @pytest.fixture(autouse=True)
    def _user(self, redis_server: Redis, _server: None) -> Iterator[None]:
        (rights,) = re.findall(r"ACL SETUSER taskmq on >SECRET (.*)", (ROOT / "docs" / "redis.md").read_text())
        redis_server.command("ACL", "SETUSER", "taskmq", "on", ">secret", *rights.split())
        self.url = self.url.replace("://", "://taskmq:secret@")
        yield
        redis_server.command("ACL", "DELUSER", "taskmq")
