from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kit import Project
from tests.e2e.producer import Producer


@pytest.fixture(
    params=[
        pytest.param("local", marks=pytest.mark.matrix),
        pytest.param("rabbitmq", marks=pytest.mark.rabbitmq),
    ]
)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    """A project on each broker with processes; the gate uses RabbitMQ."""
    state = f"local://{tmp_path}/embedded"
    url = str(request.getfixturevalue("amqp_url")) if request.param == "rabbitmq" else state
    it = Project(tmp_path, url, state)
    yield it
    it.close()


@pytest.fixture
def local_project(tmp_path: Path) -> Iterator[Project]:
    """A project on the embedded broker, for tests independent of the broker."""
    url = f"local://{tmp_path}/embedded"
    it = Project(tmp_path, url, url)
    yield it
    it.close()


@pytest.fixture
def producer(tmp_path: Path, amqp_url: str) -> Producer:
    return Producer(tmp_path, amqp_url)
