from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmq import TaskMQ
from tests.unit.app_kit import new_url
from tests.unit.server.kit import Site, build_served, open_site


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the handlers before the test processes are forked: each of them would take a second to build its own."""
    here = Path(__file__).parent
    if session.config.getoption("processes") is not None and any(here in item.path.parents for item in session.items):
        build_served(TaskMQ(new_url()))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_site(tmp_path) as opened:
        yield opened
