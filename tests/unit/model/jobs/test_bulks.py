"""Operations on many jobs."""

import json

import msgspec
import pytest

from taskmq.model.jobs.bulks import (
    MOST_DEFERRED,
    MOST_REFUSALS,
    Bulk,
    BulkAction,
    BulkRefused,
    BulkRepeated,
    add_outcomes,
    narrow_filter,
)
from taskmq.model.jobs.filters import JobFilter, Retried

_BULK = Bulk(id="1", tenant="acme", action="cancel", filter="state=held")


def test_a_key_belongs_to_one_tenant() -> None:
    keys = [msgspec.structs.replace(_BULK, tenant=tenant, key="k").unique_key for tenant in ("acme", "", None)]

    assert len({*keys}) == 3
    assert json.loads(keys[0] or "") == ["acme", "k"]
    assert _BULK.unique_key is None


def test_the_mark_of_a_bulk_is_in_the_history_of_every_job() -> None:
    assert _BULK.mark == "bulk 1"


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ((), True),
        ((("shop.*",),), True),
        ((("shop.*", "mail.*"), ("*.pay",)), True),
        ((("mail.*",), ("*.pay",)), False),
    ],
)
def test_a_task_has_to_match_every_limiting_pattern(tasks: tuple[tuple[str, ...], ...], expected: bool) -> None:
    assert msgspec.structs.replace(_BULK, tasks=tasks).allows("shop.pay") is expected


def test_outcomes_are_counted_and_a_limited_number_of_refusals_is_kept() -> None:
    refusals = [BulkRefused(str(number), "JobConflict", "it has ended") for number in range(MOST_REFUSALS)]
    begun = msgspec.structs.replace(_BULK, pending=("7",))

    once = add_outcomes(begun, done=5, refusals=refusals[:1], due=9)
    twice = add_outcomes(once, done=1, refusals=refusals, due=10)

    assert (once.done, once.refused, once.pending, once.due) == (5, 1, (), 9)
    assert (twice.done, twice.refused, len(twice.refusals)) == (6, 1 + MOST_REFUSALS, MOST_REFUSALS)


def test_the_new_ids_of_the_first_repeated_jobs_are_kept() -> None:
    repeated = [BulkRepeated(str(number), f"again {number}") for number in range(MOST_REFUSALS)]

    once = add_outcomes(_BULK, done=1, refusals=(), due=9, repeated=repeated[:1])
    twice = add_outcomes(once, done=MOST_REFUSALS, refusals=(), due=9, repeated=repeated)

    assert once.repeated == (repeated[0],)
    assert (twice.done, len(twice.repeated), twice.repeated[1]) == (1 + MOST_REFUSALS, MOST_REFUSALS, repeated[0])


@pytest.mark.parametrize(
    ("action", "said", "again", "meant"),
    [
        ("retry", "", False, "no"),
        ("retry", "", True, "any"),
        ("retry", "yes", False, "yes"),
        ("cancel", "", False, ""),
    ],
)
def test_a_bulk_retry_skips_jobs_that_were_retried_before(
    action: BulkAction, said: Retried, again: bool, meant: str
) -> None:
    assert narrow_filter(JobFilter(retried=said), action, again=again) == JobFilter(retried=meant)  # type: ignore[arg-type]


def test_waiting_jobs_are_visited_again_until_no_visit_helps() -> None:
    listing = add_outcomes(_BULK, done=0, refusals=(), due=9, deferred=["c", "b"])
    listed = add_outcomes(msgspec.structs.replace(listing, is_listed=True), done=1, refusals=(), due=9)
    once = add_outcomes(
        msgspec.structs.replace(listed, deferred=(), pending=("b", "c")),
        done=0,
        refusals=(),
        due=9,
        deferred=["b", "c"],
    )
    helped = add_outcomes(msgspec.structs.replace(once, deferred=("c",)), done=1, refusals=(), due=9)

    assert (listing.deferred, listing.has_more, listing.may_defer) == (("b", "c"), True, True)
    assert (listed.has_more, listed.may_defer, listed.fruitless) == (True, True, 0)
    assert (once.deferred, once.fruitless, once.may_defer) == (("b", "c"), 2, False)
    assert (helped.fruitless, helped.may_defer) == (0, True)
    assert not msgspec.structs.replace(helped, deferred=()).has_more
    full = msgspec.structs.replace(_BULK, deferred=("a",) * MOST_DEFERRED)
    assert not full.may_defer
