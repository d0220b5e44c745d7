"""New entries since the last poll: each once, even if committed late."""

from taskmq.durable.lookback import Lookback


def _look(looks: Lookback, now: int, entries: dict[str, int]) -> list[str]:
    """Poll at `now` a store with these entries (job and time); return the reported jobs."""
    since = looks.since(now)
    found = [job for job, at in entries.items() if at >= since and looks.is_new((job, ""), at)]
    return [] if looks.end(now) else found


def test_the_first_poll_reports_nothing_and_later_ones_report_new_entries() -> None:
    looks, entries = Lookback(), {"a": 9_000}

    assert _look(looks, 10_000, entries) == []
    entries["b"] = 10_500
    assert _look(looks, 11_000, entries) == ["b"]
    assert _look(looks, 12_000, entries) == []


def test_a_late_commit_is_reported_once() -> None:
    looks = Lookback()
    _look(looks, 10_000, {})
    _look(looks, 11_000, {"b": 10_900})

    late = {"b": 10_900, "late": 8_200}

    assert _look(looks, 12_000, late) == ["late"]
    assert [_look(looks, now, late) for now in range(12_000, 20_000, 500)] == [[]] * 16


def test_the_next_poll_makes_up_for_a_failed_one() -> None:
    looks = Lookback()
    _look(looks, 10_000, {})
    assert looks.since(60_000) == 7_000

    assert _look(looks, 61_000, {"a": 30_000}) == ["a"]
