"""Building blocks for tests of taskmq, of its adapters and of programs that use it.

- `Harness`: a program's own app under test; the pytest fixture `taskmq_app` is one.
- `override`: replaces a dependency by another function.
- `FakeClock`: time that moves when a test says so.
- `FlakyBroker`: wraps a broker, injects faults, and records what was published and settled.
- `taskmq.testing.containers`: RabbitMQ, Redis and PostgreSQL in containers, and pytest's fixtures for them.
- `taskmq.testing.broker_suite`: tests of the guarantees of `taskmq.contracts.broker.Broker`.
- `taskmq.testing.state_suite`: the same for `taskmq.contracts.stores.State`.
- `taskmq.testing.job_store_suite`: the same for `taskmq.contracts.jobs.JobStore`.
- `taskmq.testing.coordinator_suite`: the same for `taskmq.contracts.stores.Coordinator`, which both have in them.

The suites are not imported here, so that pytest can still rewrite their asserts.
"""

from taskmq.testing.fake_clock import FakeClock
from taskmq.testing.flaky_broker import Acked, Confirmed, Failed, FlakyBroker, JournalEntry, Published, Requeued
from taskmq.testing.harness import FailedJob, Harness, override
from taskmq.testing.job_store import JobModel
from taskmq.testing.recorder import SentJob

__all__ = [
    "Acked",
    "Confirmed",
    "Failed",
    "FailedJob",
    "FakeClock",
    "FlakyBroker",
    "Harness",
    "JobModel",
    "JournalEntry",
    "Published",
    "Requeued",
    "SentJob",
    "override",
]
