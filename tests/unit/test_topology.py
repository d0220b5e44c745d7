import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.errors import InvalidOption
from taskmq.topology import (
    CLASSES,
    DEFAULT_QUEUE,
    PARKING,
    UNROUTABLE,
    PriorityClass,
    WorkQueue,
    check_queue_name,
    class_of,
    class_queue,
    dead_letter_queue,
    logical_queue,
)


def _is_name(text: str) -> bool:
    try:
        check_queue_name(text)
    except InvalidOption:
        return False
    return True


_names = st.text(min_size=1, max_size=60).filter(_is_name) | st.sampled_from(
    ["a", "default", "shop.images", "p.high", "x.p.highest", "größe", "a b", "dlq", "taskmq", "p", ".p", "x.p.low.y"]
)


def test_a_queue_stands_for_its_three_classes_the_highest_first() -> None:
    assert WorkQueue("images").physical == ("images.p.high", "images", "images.p.low")
    assert WorkQueue("images").kind == "quorum"


def test_the_default_queue_has_a_name_that_a_queue_may_have() -> None:
    assert check_queue_name(DEFAULT_QUEUE) == DEFAULT_QUEUE


@pytest.mark.parametrize("shared", [PARKING, UNROUTABLE])
def test_nobody_can_name_a_queue_like_a_shared_one(shared: str) -> None:
    with pytest.raises(InvalidOption):
        check_queue_name(shared)


@given(_names)
def test_every_physical_queue_leads_back_to_the_name(name: str) -> None:
    for physical in (*WorkQueue(name).physical, dead_letter_queue(name)):
        assert logical_queue(physical) == name
        assert dead_letter_queue(physical) == f"{name}.dlq"


@given(_names, _names)
def test_queues_of_different_names_share_no_physical_queue(one: str, other: str) -> None:
    ours, theirs = ({*WorkQueue(name).physical, dead_letter_queue(name)} for name in (one, other))

    assert (ours & theirs != set()) is (one == other)


@given(_names)
def test_every_physical_name_fits_an_amqp_short_string_with_a_delay_in_front(name: str) -> None:
    longest = max(len(physical.encode()) for physical in (*WorkQueue(name).physical, dead_letter_queue(name)))

    assert longest + 56 <= 255


@given(_names, st.none() | st.integers(0, 9))
def test_the_class_queue_of_a_priority_is_one_of_the_physical_ones(name: str, priority: int | None) -> None:
    assert class_queue(name, priority) == WorkQueue(name).physical[CLASSES.index(class_of(priority))]


@pytest.mark.parametrize(
    ("priority", "expected"),
    [
        (None, "default"),
        *((priority, "low") for priority in (0, 1, 2)),
        *((priority, "default") for priority in (3, 4, 5, 6)),
        *((priority, "high") for priority in (7, 8, 9)),
    ],
)
def test_the_class_of_a_priority(priority: int | None, expected: PriorityClass) -> None:
    assert class_of(priority) == expected


@pytest.mark.parametrize("priority", [-1, 10, 255, -(10**30), 10**30])
def test_a_priority_outside_0_to_9_is_refused(priority: int) -> None:
    with pytest.raises(InvalidOption, match="priority="):
        class_of(priority)


@pytest.mark.parametrize("name", ["a", "a" * 192, "ä" * 96, "shop.images", "größe", "two words", "p.high", "taskmqs"])
def test_a_good_name_comes_back_unchanged(name: str) -> None:
    assert check_queue_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", " a", "a ", "a" * 193, "ä" * 97, "a\n", "a\tb", "a\x00b", "\x7f", "a\u200bb", "\ud800", "a\udfff"),
        *("*", "#", "a.*.b", "a.#"),
        *("amq.gen", "amq.", "taskmq.parking", "taskmq.", "a.dlq", "a.p.high", "a.p.low", ".dlq", ".p.high"),
    ],
    ids=ascii,
)
def test_a_name_that_no_queue_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="queue name"):
        check_queue_name(name)


@given(st.text(alphabet=st.characters(), max_size=200))
def test_any_text_is_a_name_or_a_typed_error(text: str) -> None:
    try:
        assert check_queue_name(text) == text
    except InvalidOption:
        return
    assert 1 <= len(text.encode()) <= 192


def test_a_physical_queue_leads_to_the_dead_letter_queue_of_its_name_and_so_does_that_one() -> None:
    for name in ("a", "a.p.high", "a.p.low", "a.dlq"):
        assert dead_letter_queue(name) == "a.dlq"
