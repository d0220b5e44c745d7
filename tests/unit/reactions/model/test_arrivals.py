"""Completeness of a file."""

from hypothesis import given
from hypothesis import strategies as st

from taskmq.reactions import Arrivals, FileArrived, Sighting, file

SECOND = 1_000
A = Sighting("/in/a", 1, 10, 1_000_000_000)


def _paths(arrivals: Arrivals, found: list[Sighting], seconds: float) -> list[str]:
    paths = []
    for seen, noted in arrivals.update(found, now=seconds * SECOND):
        assert isinstance(noted.event, FileArrived)
        paths.append(noted.event.path)
        arrivals.mark_handled(seen)
    return paths


def test_a_file_is_complete_once_it_has_not_changed_for_long_enough() -> None:
    arrivals = Arrivals(file("/in/*", stable="5s"))

    assert _paths(arrivals, [A], 0) == []
    assert _paths(arrivals, [A._replace(size=11)], 3) == []
    assert _paths(arrivals, [A._replace(size=11)], 7) == []
    assert _paths(arrivals, [A._replace(size=11)], 8) == ["/in/a"]
    assert _paths(arrivals, [A._replace(size=11)], 9) == []


def test_a_file_is_complete_once_its_flag_exists() -> None:
    arrivals = Arrivals(file("/in/*", done=".done"))

    assert _paths(arrivals, [A], 0) == []
    assert _paths(arrivals, [A._replace(is_flagged=True)], 1) == ["/in/a"]
    # The later fate of the flag does not matter either.
    assert _paths(arrivals, [A], 2) == []
    assert _paths(arrivals, [A._replace(is_flagged=True)], 3) == []


def test_both_conditions_have_to_hold_if_both_are_requested() -> None:
    arrivals = Arrivals(file("/in/*", done=".done", stable="2s"))

    assert _paths(arrivals, [A._replace(is_flagged=True)], 0) == []
    assert _paths(arrivals, [A], 5) == []
    assert _paths(arrivals, [A._replace(is_flagged=True)], 6) == ["/in/a"]


def test_a_rewritten_file_is_a_new_file() -> None:
    arrivals = Arrivals(file("/in/*", done=".done"))
    flagged = A._replace(is_flagged=True)
    ((first, told),) = arrivals.update([flagged], now=0)
    arrivals.mark_handled(first)

    for other in (flagged._replace(modified=5), flagged._replace(size=5), flagged._replace(inode=5)):
        ((_, noted),) = arrivals.update([other], now=0)
        assert noted.id != told.id


def test_an_unreported_file_is_found_again() -> None:
    arrivals = Arrivals(file("/in/*", stable="1s"))
    arrivals.update([A], now=0)

    first = arrivals.update([A], now=1 * SECOND)
    assert first == arrivals.update([A], now=2 * SECOND) != []


@given(
    looks=st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 3), unique=True, max_size=4)), max_size=30),
    stable=st.integers(1, 4),
)
def test_a_file_is_reported_once_it_was_stable_in_each_poll_for_its_time(
    looks: list[tuple[int, list[int]]], stable: int
) -> None:
    arrivals = Arrivals(file("/in/*", stable=stable))
    # Two paths with two versions each.
    files = [Sighting(f"/in/{number % 2}", 1, number, 1) for number in range(4)]
    now = 0
    since: dict[int, int] = {}
    told: set[int] = set()
    for passed, there in looks:
        now += passed
        since = {number: since.get(number, now) for number in there}
        told &= set(there)
        expected = [number for number in there if number not in told and now - since[number] >= stable]

        found = [seen for seen, _ in arrivals.update([files[number] for number in there], now=now * SECOND)]
        assert found == [files[number] for number in expected]
        for seen in found:
            arrivals.mark_handled(seen)
        told.update(expected)
