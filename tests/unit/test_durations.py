"""Every duration parameter accepts text, too."""

import importlib
import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import taskmq
from taskmq import InvalidOption, TaskMQ
from taskmq.probe import _seconds  # pyright: ignore[reportPrivateUsage]
from taskmq.testing import FakeClock, Harness
from taskmq.worker import WorkerConfig
from tests.house.tree import public_names
from tests.unit.app_kit import new_url

_TIMES = {
    "debounce", "delay", "every", "expires", "grace", "keep", "lease", "remember", "result_ttl", "send_timeout",
    "soft_timeout", "stable", "step", "timeout", "ttl", "watch", "within",
}  # fmt: skip
_MODULES = (
    "taskmq.events.control",
    "taskmq.operations.dead_letters",
    "taskmq.operations.diagnosis.doctor",
    "taskmq.operations.jobs",
    "taskmq.operations.queues",
    "taskmq.operations.workers",
    "taskmq.testing.fake_clock",
    "taskmq.testing.harness",
)


def _public() -> Iterator[tuple[str, Callable[..., Any]]]:
    values = [(name, getattr(taskmq, name)) for name in taskmq.__all__]
    for module in map(importlib.import_module, _MODULES):
        values += [(f"{module.__name__}.{name}", getattr(module, name)) for name in public_names(module)]
    for name, value in values:
        if inspect.isclass(value):
            for part, member in inspect.getmembers(value, inspect.isfunction):
                if not part.startswith("_") or part == "__init__":
                    yield f"{name}.{part}", member
        elif inspect.isfunction(value):
            yield name, value


def test_no_public_parameter_accepts_a_time_only_as_a_number() -> None:
    wrong = {
        f"{name}({parameter.name}: {parameter.annotation})"
        for name, function in _public()
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name in _TIMES and parameter.annotation in (float, int, "float", "int", float | None)
    }

    assert wrong == set()


def test_a_harness_and_a_fake_clock_accept_texts() -> None:
    app = TaskMQ(new_url())

    @app.task
    async def quick() -> None: ...

    with Harness(app, timeout="60s") as harness:
        quick.send()
        harness.drain()
    FakeClock(0).advance("1h")
    with pytest.raises(InvalidOption, match="timeout='soon' is not a duration"):
        Harness(app, timeout="soon")
    with pytest.raises(InvalidOption, match=r"^timeout='60' has no unit: for seconds write '60s'$"):
        Harness(app, timeout="60")


@pytest.mark.parametrize("grace", ["1m30s", timedelta(seconds=90), 90.0])
def test_a_worker_config_accepts_texts(grace: Any) -> None:
    assert WorkerConfig(grace=grace).grace == 90.0


def test_a_worker_config_refuses_an_invalid_duration() -> None:
    with pytest.raises(InvalidOption, match="grace='soon' is not a duration"):
        WorkerConfig(grace="soon")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("text", "seconds"), [("5", 5.0), ("0.1", 0.1), ("5s", 5.0), ("500ms", 0.5), ("1m", 60.0)])
def test_the_quick_probe_parses_short_durations(text: str, seconds: float) -> None:
    assert _seconds(text) == seconds
