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
from tests.conformance.night import at_night
from tests.docs.blocks import ROOT
from tests.servers.redis import Redis


class TestMemory(StateSuite):
    """On a clock of the test, which spares the suite 35 s."""

    short = 60

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        self.name, self.clock = uuid.uuid4().hex, FakeClock()
        yield
        forget_memory(self.name)

    def open_state(self, name: str = "") -> State:
        return open_memory_state(f"memory://{self.name}", BrokerOptions(name=name, clock=self.clock))

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)


@pytest.mark.matrix
class TestMemoryInRealTime(StateSuite):
    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        self.name = uuid.uuid4().hex
        yield
        forget_memory(self.name)

    def open_state(self, name: str = "") -> State:
        return open_memory_state(f"memory://{self.name}", BrokerOptions(name=name))


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


# Each waits 2 s or longer until something has expired. One test of each kind of expiry (a lease, a claim, a permit, a
# rate, a record, a delayed message, saved values, a revocation) waits in the gate, too.
@at_night(
    pytest.mark.nightly("tests/conformance/test_states.py"),
    "test_late_jobs_in_line_do_not_change_the_order_of_earlier_ones",
    "test_tokens_only_grow_across_release_and_expiry",
    "test_a_run_that_asks_at_its_time_starts_before_newcomers",
    "test_many_keys_are_renewed_in_one_call",
    "test_an_expired_job_starts_anew_despite_many_other_expired_jobs",
    "test_asking_again_gives_a_time_after_earlier_runs",
    "test_a_job_cancelled_again_after_expiry_comes_last",
    "test_a_late_holder_still_counts_if_nobody_claimed_since",
    "test_the_holder_of_an_expired_lease_is_too_late",
    "test_a_late_completion_also_removes_the_message_from_the_next_taker",
    "test_the_members_of_a_group_are_its_lease_holders",
    "test_cancelling_again_changes_only_the_expiry",
    "test_each_start_renews_the_expiry",
    "test_a_completed_message_is_gone",
    "test_a_renewal_can_lengthen_or_shorten_a_lease",
    "test_an_expired_success_can_be_replaced",
    "test_every_start_and_save_renews_the_expiry_of_all_values",
    "test_a_renewed_short_lease_stays_valid",
    "test_records_expire",
    "test_reports_expire_and_each_report_renews_the_expiry",
    "test_a_member_stays_as_long_as_it_renews",
    "test_a_completed_key_expires",
    "test_a_taken_message_is_neither_cancelled_nor_changed",
    "test_run_counts_expire",
)
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
