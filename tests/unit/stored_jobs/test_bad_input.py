"""Invalid submissions: a typed error names the field and the remedy, and nothing is stored."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskmq import Job
from taskmq.errors import EncodeError, InvalidArguments, InvalidFilter, InvalidOption, TaskMQError, UnknownTask
from taskmq.model.jobs.filter_text import parse_filter
from taskmq.model.states import JobState
from taskmq.model.units import LAST_INSTANT
from tests.coroutines import run_by
from tests.unit.stored_jobs.kit import Shop, in_shop

_Submit = Callable[[Shop], Any]

_REFUSED: dict[str, tuple[_Submit, type[TaskMQError], str]] = {
    "a task that nobody has": (lambda shop: shop.jobs.asubmit("duoble", 1), UnknownTask, "double"),
    "too few arguments": (lambda shop: shop.jobs.asubmit("double"), InvalidArguments, "number"),
    "too many": (lambda shop: shop.jobs.asubmit("double", 1, 2), InvalidArguments, "double"),
    "one of no such name": (lambda shop: shop.jobs.asubmit("double", nombre=1), InvalidArguments, "nombre"),
    "one of another type": (lambda shop: shop.jobs.asubmit("double", "x"), InvalidArguments, "number"),
    "one without a form": (lambda shop: shop.jobs.asubmit("end", "\ud800"), EncodeError, "end"),
    "a time without a zone": (
        lambda shop: shop.jobs.asubmit("double", 1, at=datetime(2030, 1, 1)),  # noqa: DTZ001 - the point
        InvalidOption,
        "time zone",
    ),
    "an end without a zone": (
        lambda shop: shop.jobs.asubmit("double", 1, expires=datetime(2030, 1, 1)),  # noqa: DTZ001 - the point
        InvalidOption,
        "time zone",
    ),
    "a delay that is none": (lambda shop: shop.jobs.asubmit("double", 1, delay="soon"), InvalidOption, "delay"),
    "a delay of ages": (lambda shop: shop.jobs.asubmit("double", 1, delay=timedelta.max), InvalidOption, "delay"),
    "a delay into the past": (lambda shop: shop.jobs.asubmit("double", 1, delay=-5), InvalidOption, "delay"),
    "a priority that is none": (lambda shop: shop.jobs.asubmit("double", 1, priority=10), InvalidOption, "priority"),
    "a queue's name that is none": (
        lambda shop: shop.jobs.asubmit("double", 1, queue="a b\0"),
        InvalidOption,
        "queue",
    ),
    "an id of 500 characters": (
        lambda shop: shop.jobs.asubmit("double", 1, job_id="x" * 500),
        InvalidOption,
        "job_id",
    ),
    "an id of two lines": (lambda shop: shop.jobs.asubmit("double", 1, job_id="a\nb"), InvalidOption, "job_id"),
    "an id that clears a terminal": (
        lambda shop: shop.jobs.asubmit("double", 1, job_id="a\x9b2J"),
        InvalidOption,
        "job_id",
    ),
    "a label of two lines": (
        lambda shop: shop.jobs.asubmit("double", 1, labels={"a\nb": "c"}),
        InvalidOption,
        "label",
    ),
    "an id with a NUL": (lambda shop: shop.jobs.asubmit("double", 1, job_id="a\0b"), InvalidOption, "job_id"),
    "a tenant with a NUL": (lambda shop: shop.jobs.asubmit("double", 1, tenant="a\0b"), InvalidOption, "tenant"),
    "an id with half a character": (
        lambda shop: shop.jobs.asubmit("double", 1, job_id="a\ud800"),
        InvalidOption,
        "job_id",
    ),
    "a description with a NUL": (
        lambda shop: shop.jobs.asubmit("double", 1, description="a\0b"),
        InvalidOption,
        "description",
    ),
    "a long owner": (lambda shop: shop.jobs.asubmit("double", 1, owner="x" * 500), InvalidOption, "owner"),
    "a label with half a character": (
        lambda shop: shop.jobs.asubmit("double", 1, labels={"team": "\udfff"}),
        InvalidOption,
        "team",
    ),
    "33 labels": (
        lambda shop: shop.jobs.asubmit("double", 1, labels={f"{n}": "x" for n in range(33)}),
        InvalidOption,
        "labels",
    ),
    "one bad call of many": (
        lambda shop: shop.jobs.asubmit_many("double", [(1,), ("x",), (3,)]),
        InvalidArguments,
        "number",
    ),
}


@pytest.mark.parametrize("what", _REFUSED)
@run_by(in_shop)
async def test_invalid_input_is_refused_by_name_and_nothing_is_stored(shop: Shop, /, what: str) -> None:
    submit, kind, named = _REFUSED[what]

    with pytest.raises(kind, match=named):
        await submit(shop)

    assert await shop.jobs.acount() == 0


@run_by(in_shop)
async def test_a_past_time_means_now_and_a_far_one_is_kept(shop: Shop, /) -> None:
    past: Job[Any] = await shop.jobs.asubmit("double", 1, at=datetime(1971, 1, 1, tzinfo=UTC))
    assert await past.aresult(timeout=60) == 2

    far: Job[Any] = await shop.jobs.asubmit("double", 1, at=datetime(2999, 12, 31, tzinfo=UTC))
    record = await shop.jobs.aget(far.id)
    assert record.state is JobState.SCHEDULED
    assert record.due == round(datetime(2999, 12, 31, tzinfo=UTC).timestamp() * 1000)
    assert (await shop.jobs.achange(far.id, delay="999999999d")).due == LAST_INSTANT


@run_by(in_shop)
async def test_a_mebibyte_of_any_text_survives_the_round_trip(shop: Shop, /) -> None:
    text = "\0☂\U0001f600" * 130_000
    job: Job[Any] = await shop.jobs.asubmit("end", text)

    assert await job.aresult(timeout=60) == text


@pytest.mark.parametrize(
    ("text", "column", "named"),
    [
        ("stauts:failed", 1, "status"),
        ("status:fialed", 8, "failed"),
        ("task:a created:yesterday", 8, "created"),
        ('key:"order 17', 5, "quote"),
        ("created:>2026-01-01T00:00:00", 9, "zone"),
        ("\0", 1, "has no field"),
    ],
)
def test_an_invalid_filter_is_refused_with_its_position_and_the_expected_text(
    text: str, column: int, named: str
) -> None:
    with pytest.raises(InvalidFilter, match=named) as refused:
        parse_filter(text, 0)

    assert refused.value.column >= column
