"""Pytest plugin: the fixture `taskmq_app`, an app under test. Imports taskmq only when a test asks for it."""

import os
from collections.abc import Generator
from datetime import datetime

import pytest

# Avoids importing `typing`, which every pytest run would pay for.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from taskmq.model.units import Duration
    from taskmq.testing import Harness


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings `taskmq_app`, `taskmq_store` and `taskmq_timeout`."""
    parser.addini("taskmq_app", "the app under test of the fixture taskmq_app: MODULE:ATTRIBUTE", default="")
    parser.addini("taskmq_store", "whether the app has a job store: true or false", default="")
    parser.addini("taskmq_timeout", "maximum real time of a drain() or advance() of taskmq_app", default="10s")


@pytest.fixture
def taskmq_target(request: pytest.FixtureRequest) -> object:
    """Return the app under test: an app, a function that makes one, or `MODULE:ATTRIBUTE`.

    Override it, or set `taskmq_app` in pytest's settings or `app` in taskmq's.
    """
    from taskmq.client.settings import load_settings

    named: str = request.config.getini("taskmq_app")
    return named or load_settings(os.environ, request.config.rootpath).app


@pytest.fixture
def taskmq_start() -> datetime | None:
    """Return the app's time at the start of a test; None: now. Override it."""
    return None


@pytest.fixture
def taskmq_store(request: pytest.FixtureRequest) -> bool | None:
    """Return whether the app has a job store; None: as the app says. Override it, or set `taskmq_store`.

    Raises:
        InvalidSetting: the setting is neither true nor false.
    """
    from taskmq.errors import InvalidSetting

    named: str = request.config.getini("taskmq_store").lower()
    if named not in ("", "true", "false"):
        raise InvalidSetting(f"taskmq_store = {named} in pytest's settings: must be true or false")
    return None if not named else named == "true"


@pytest.fixture
def taskmq_timeout(request: pytest.FixtureRequest) -> "Duration":
    """Return the maximum real time of one `drain` or `advance`; override it, or set `taskmq_timeout`."""
    named: str = request.config.getini("taskmq_timeout")
    return named


@pytest.fixture
def taskmq_app(
    taskmq_target: object,
    taskmq_start: datetime | None,
    taskmq_timeout: "Duration",
    taskmq_store: bool | None,  # noqa: FBT001 - pytest passes fixtures by name
) -> "Generator[Harness, None, None]":
    """Run the app under test; see `taskmq.testing.Harness`."""
    from taskmq.app import TaskMQ
    from taskmq.errors import AppNotFound
    from taskmq.load_app import load_app
    from taskmq.testing import Harness

    target = taskmq_target
    if not target:
        raise AppNotFound(
            "no app under test: set taskmq_app = 'MODULE:ATTRIBUTE' in pytest's settings, or define a "
            "fixture taskmq_target that returns the app"
        )
    if isinstance(target, str):
        target, _ = load_app(target)
    elif callable(target):
        target = target()
    if not isinstance(target, TaskMQ):
        raise AppNotFound(f"taskmq_target={target!r}: must be an app, a function that makes one, or MODULE:ATTRIBUTE")
    with Harness(target, start=taskmq_start, timeout=taskmq_timeout, store=taskmq_store) as harness:
        yield harness
