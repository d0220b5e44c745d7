"""Cron in every zone of the host, compared with an observer who reads the clock each minute.

`$TASKMQ_TEST_ZONES` is the number of zones: default 2, those with the oddest changes, in the year 2018; 3 and more
add some that `$TASKMQ_TEST_SEED` chooses; `all` for all of them, from 2000 to 2037. Frequent expressions are
compared around each change of the clocks, the others all the time: `$TASKMQ_TEST_ZONES_OFTEN` is the number of
instants a day that counts as frequent. All zones take some 15 minutes of a core with 0.9, the default, and half an
hour with 7. `$TASKMQ_TEST_ZONES_PART` selects one of several processes, such as `1/2`.
"""

import itertools
import os
import random
import time
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from taskmq.schedules.triggers import Cron
from tests.unit.schedules.triggers.minute_walk import (
    DAY,
    FIRST,
    LAST,
    MEANINGS,
    Meaning,
    Stretch,
    all_zones,
    due,
    stretches,
)

pytestmark = pytest.mark.simulation

HOW_MANY = os.environ.get("TASKMQ_TEST_ZONES", "2")
SEED = int(os.environ.get("TASKMQ_TEST_SEED", "7"))
START, END = (FIRST, LAST) if HOW_MANY == "all" else (FIRST + 18 * 365 * DAY, FIRST + 19 * 365 * DAY)
PART, PARTS = map(int, os.environ.get("TASKMQ_TEST_ZONES_PART", "1/1").split("/"))
OFTEN = float(os.environ.get("TASKMQ_TEST_ZONES_OFTEN", "0.9"))
HOUR = 60
POLICIES = tuple(itertools.product(("run_after", "skip"), ("first", "second", "both")))


def _of_cron(cron: Cron, start: int, end: int) -> list[int]:
    """Return the instants of the schedule, in minutes from `start` up to `end`."""
    found: list[int] = []
    instant = cron.next_after(start * 60_000 - 1)
    while instant is not None and instant < end * 60_000:
        assert instant % 60_000 == 0
        found.append(instant // 60_000)
        instant = cron.next_after(instant)
    return found


def _differences(
    zone: str, meaning: Meaning, walk: tuple[Stretch, ...], windows: list[tuple[int, int]], policy: tuple[Any, Any]
) -> tuple[int, list[str]]:
    """Return the number of instants and their differences."""
    gap, fold = policy
    cron = Cron(meaning.expression, zone, dst_gap=gap, dst_fold=fold, both_days=meaning.both_days)
    count, found = 0, []
    for start, end in windows:
        said, expected = _of_cron(cron, start, end), due(meaning, walk, start, end, gap=gap, fold=fold)
        count += len(expected)
        if said != expected:
            wrong = sorted({*said} ^ {*expected})[:5]
            found.append(f"{cron}: {wrong} by one of them only, {len(said)} and {len(expected)} in all")
    return count, found


def _around_changes(walk: tuple[Stretch, ...], reach: int) -> list[tuple[int, int]]:
    """Return periods around each change, with `reach` additional minutes."""
    windows: list[tuple[int, int]] = []
    for before, after in itertools.pairwise(walk):
        spare = reach + abs(after.offset - before.offset)
        start, end = max(after.start - spare, START), min(after.start + spare, END)
        if windows and start < windows[-1][1]:
            windows[-1] = (windows[-1][0], end)
        else:
            windows.append((start, end))
    return windows


def _chosen() -> list[str]:
    zones = sorted(all_zones())
    if HOW_MANY != "all":
        # Two zones with half-hour and two-hour changes are always included.
        some = random.Random(SEED).sample(zones, max(int(HOW_MANY) - 2, 0))
        zones = sorted({*some, "Australia/Lord_Howe", "Antarctica/Troll"})
    return zones[PART - 1 :: PARTS]


@pytest.mark.timeout(36_000)
def test_every_zone_matches_a_reading_of_its_clocks(capsys: pytest.CaptureFixture[str]) -> None:
    walks: dict[tuple[Stretch, ...], str] = {}
    zones = _chosen()
    for zone in zones:
        # Zones with equal clocks in all these years count as one.
        walks.setdefault(stretches(ZoneInfo(zone), START, END), zone)
    began, counted, wrong = time.monotonic(), 0, []
    for done, meaning in enumerate(MEANINGS, 1):
        is_by_the_minute = meaning.per_day > 6
        for walk, zone in walks.items():
            for policy in POLICIES[:1] if meaning.by_elapsed_time else POLICIES:
                whole = policy == POLICIES[0] and meaning.average < OFTEN
                reach = 3 * HOUR if is_by_the_minute else 2 * DAY
                windows = [(START + DAY, END - DAY)] if whole else _around_changes(walk, reach)
                count, found = _differences(zone, meaning, walk, windows, policy)
                counted += count
                wrong += found
        meaning.forget()
        with capsys.disabled():
            if HOW_MANY == "all":
                print(f"{done}/{len(MEANINGS)} {meaning.expression}: {counted:,} instants, {len(wrong)} differences, "
                      f"{time.monotonic() - began:.0f} s", flush=True)  # fmt: skip

    assert wrong == []
    assert counted > 10_000
    with capsys.disabled():
        if HOW_MANY == "all":
            print(f"{len(zones)} zones of {len(walks)} kinds, {len(MEANINGS)} expressions: {counted:,} instants")
