"""Resources of a worker: acquired, released, waited for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.app import TaskMQ
from taskmq.model.envelope import Envelope
from taskmq.model.resources import Grant
from taskmq.worker.attempt import Attempt
from taskmq.worker.host.resources import capacity, devices
from taskmq.worker.intake.resources import ResourcePool
from tests.unit.worker.staged import FakeDelivery

app = TaskMQ("memory://")


@app.task
async def job() -> None: ...


def attempt(label: str) -> Attempt:
    return Attempt(FakeDelivery(b"", message_id=label), Envelope(task=job.name), job, label)


def names(*found: tuple[Attempt, Grant] | None) -> list[str | None]:
    return [one[0].job_id if one else None for one in found]


def test_a_resource_is_given_only_once_and_returned() -> None:
    slots = ResourcePool({"cpu": 2, "memory": 100})

    first = slots.take({"cpu": 1.5, "memory": 10}, now=0)
    assert first is not None
    assert slots.take({"cpu": 1}, now=0) is None
    assert slots.take({"cpu": 0.5}, now=0) is not None
    slots.give_back(first)

    assert slots.take({"cpu": 1.5, "memory": 100}, now=0) is not None


def test_each_run_gets_separate_gpus() -> None:
    slots = ResourcePool({"gpu": 3}, devices=["0", "1", "7"])

    one, two = slots.take({"gpu": 2}, now=0), slots.take({"gpu": 1}, now=0)

    assert one is not None
    assert two is not None
    assert (one.devices, two.devices) == (("0", "1"), ("7",))
    slots.give_back(one)
    again = slots.take({"gpu": 1}, now=0)
    assert again is not None
    assert again.devices == ("0",)


def test_an_impossible_amount_is_reported() -> None:
    slots = ResourcePool({"cpu": 2})

    assert slots.lacks({"cpu": 4, "gpu": 1}) == {"cpu": 2, "gpu": 0}
    assert slots.lacks({"cpu": 2}) == {}


def test_a_waiting_run_starts_when_its_needs_are_free_and_fitting_ones_pass() -> None:
    slots = ResourcePool({"cpu": 4})
    taken = slots.take({"cpu": 3}, now=0)
    assert taken is not None
    slots.wait(attempt("large"), {"cpu": 4}, now=0)
    slots.wait(attempt("small"), {"cpu": 1}, now=0)

    assert names(slots.next(now=1), slots.next(now=1)) == ["small", None]
    assert len(slots) == 1
    slots.give_back(taken)
    assert names(slots.next(now=1)) == [None]
    slots.give_back(Grant({"cpu": 1}))
    assert names(slots.next(now=1)) == ["large"]
    assert not slots


def test_a_run_that_has_waited_too_long_is_not_overtaken_by_rivals() -> None:
    slots = ResourcePool({"cpu": 4, "licence": 1}, patience=30)
    taken = slots.take({"cpu": 3}, now=0)
    assert taken is not None
    slots.wait(attempt("large"), {"cpu": 4}, now=0)
    slots.wait(attempt("small"), {"cpu": 1}, now=10)
    slots.wait(attempt("other"), {"licence": 1}, now=10)

    assert slots.take({"cpu": 1}, now=31) is None
    assert names(slots.next(now=31), slots.next(now=31)) == ["other", None]
    slots.give_back(taken)
    assert names(slots.next(now=31), slots.next(now=31)) == ["large", None]


def test_a_waiting_run_can_be_removed() -> None:
    slots = ResourcePool({"cpu": 1})
    held, other = attempt("a"), attempt("b")
    slots.wait(held, {"cpu": 2}, now=0)
    slots.wait(other, {"cpu": 2}, now=0)

    assert slots.has(held.delivery)
    assert slots.remove("a") is held
    assert slots.remove("a") is None
    assert not slots.has(held.delivery)
    assert slots.clear() == [other]
    assert slots.clear() == []


@given(st.lists(st.tuples(st.floats(0.1, 4), st.booleans()), max_size=60))
def test_any_sequence_of_requests_loses_and_creates_nothing(steps: list[tuple[float, bool]]) -> None:
    slots = ResourcePool({"cpu": 4.0})
    out: list[Grant] = []
    for amount, gives in steps:
        if gives and out:
            slots.give_back(out.pop(0))
        elif (grant := slots.take({"cpu": amount}, now=0)) is not None:
            out.append(grant)
        assert sum(grant.amounts["cpu"] for grant in out) <= 4 + 1e-6
    for grant in out:
        slots.give_back(grant)
    assert slots.take({"cpu": 4.0}, now=0) is not None


@pytest.mark.parametrize(
    ("visible", "expected"), [("0,2", ["0", "2"]), ("", []), ("-1", []), ("GPU-8f3, GPU-9", ["GPU-8f3", "GPU-9"])]
)
def test_gpus_are_those_that_the_environment_shows(visible: str, expected: list[str]) -> None:
    assert devices({"CUDA_VISIBLE_DEVICES": visible}) == expected


def test_a_worker_has_its_share_of_the_machine_and_its_configured_resources() -> None:
    whole, half = capacity(None, processes=1), capacity({"cpu": 7, "licence": 2}, processes=2)

    assert whole["cpu"] >= 1
    assert whole["memory"] > 1024**2
    assert half["memory"] == whole["memory"] // 2
    assert (half["cpu"], half["licence"]) == (7, 2)
