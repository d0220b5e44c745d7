"""Run the tests that the gate runs on the newest RabbitMQ: `python -m tests.newest`.

They are the core of the contract of brokers, and the repair of deleted objects; `make test-nightly` runs all others
there, too.
That RabbitMQ runs in a chroot, so they need root; without it, this lists the omitted tests.
"""

import os
import subprocess
import sys

from taskmq.testing.broker_suite.administration import Administration
from taskmq.testing.broker_suite.delays import Delaying
from taskmq.testing.broker_suite.settlement import Settling
from tests.servers.chroot import SUITES

_CONTRACT = "tests/conformance/test_rabbitmq.py::TestRabbitMQ"
_TESTS = (
    *(
        f"{_CONTRACT}::{name}"
        for part in (Settling, Delaying, Administration)
        for name in vars(part)
        if name.startswith("test_")
    ),
    "tests/integration/test_rabbitmq_deleted_topology.py",
)


def main() -> int:
    """Return the exit code of the tests, or 0 if they cannot run."""
    newest = max(SUITES)
    if os.geteuid() != 0:
        print(f"Left out, as a chroot with RabbitMQ {newest} needs root: {_CONTRACT} and {_TESTS[-1]}")
        return 0
    subprocess.run([sys.executable, "-m", "tests.servers", "provision", f"rabbitmq-{newest}"], check=True)
    command = [sys.executable, "-m", "pytest", "--processes", "2", "-m", "not campaign", *_TESTS]
    return subprocess.run(command, env=os.environ | {"TASKMQ_TEST_RABBITMQ": newest}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
