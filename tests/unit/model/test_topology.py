import hashlib
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.errors import InvalidOption
from taskmq.model.topology import (
    CLASSES,
    DEFAULT_QUEUE,
    PARKING,
    UNROUTABLE,
    PriorityClass,
    WorkQueue,
    check_order_key,
    check_queue_name,
    class_of,
    class_queue,
    dead_letter_queue,
    is_class_queue,
    is_lane,
    is_node_queue,
    is_reports_queue,
    is_shard,
    is_work_queue,
    jobs_queue,
    lanes_of,
    logical_queue,
    node_queue,
    reports_queue,
    shard_of,
    slow_lane,
)


def _is_name(text: str) -> bool:
    try:
        check_queue_name(text)
    except InvalidOption:
        return False
    return True


_names = st.text(min_size=1, max_size=60).filter(_is_name) | st.sampled_from(
    [
        *(
            "a",
            "default",
            "shop.images",
            "p.high",
            "x.p.highest",
            "größe",
            "a b",
            "dlq",
            "taskmq",
            "p",
            ".p",
            "x.p.low.y",
        ),
        *("lane00", "x.lane0", "x.lane000", "x.lane00.y", "x.lane\u0660\u0660"),
        *("s00", "x.s0", "x.s000", "x.s00.y", "x.s\u0660\u0660", "x.t00"),
    ]
)
# Every way to split a queue of that name.
_ways = st.sampled_from([{}, {"priorities": "native"}, {"ordered": 1}, {"ordered": 100}, {"lanes": 2}, {"lanes": 64}])


def test_a_queue_has_three_priority_classes_and_two_for_stored_jobs() -> None:
    stored = ("images.jobs", "images.parcels")
    assert WorkQueue("images").physical == ("images.p.high", "images", "images.p.low", *stored)
    assert WorkQueue("images").kind == "quorum"


def test_the_default_queue_has_a_valid_name() -> None:
    assert check_queue_name(DEFAULT_QUEUE) == DEFAULT_QUEUE


@pytest.mark.parametrize("shared", [PARKING, UNROUTABLE])
def test_a_queue_cannot_have_the_name_of_a_shared_one(shared: str) -> None:
    with pytest.raises(InvalidOption):
        check_queue_name(shared)


@given(_names, _ways)
def test_every_physical_queue_maps_back_to_its_name(name: str, way: dict[str, Any]) -> None:
    for physical in (*WorkQueue(name, **way).physical, dead_letter_queue(name)):
        assert logical_queue(physical) == name
        assert dead_letter_queue(physical) == f"{name}.dlq"


@given(_names, _names, _ways, _ways)
def test_queues_of_different_names_share_no_physical_queue(
    one: str, other: str, way: dict[str, Any], other_way: dict[str, Any]
) -> None:
    ours = {*WorkQueue(one, **way).physical, dead_letter_queue(one)}
    theirs = {*WorkQueue(other, **other_way).physical, dead_letter_queue(other)}

    assert (ours & theirs != set()) is (one == other)


@given(_names)
def test_every_physical_name_fits_an_amqp_short_string_with_a_delay_prefix(name: str) -> None:
    longest = max(len(physical.encode()) for physical in (*WorkQueue(name).physical, dead_letter_queue(name)))

    assert longest + 56 <= 255


@given(_names, st.none() | st.integers(0, 9))
def test_the_class_queue_of_a_priority_is_a_physical_queue(name: str, priority: int | None) -> None:
    assert class_queue(name, priority) == WorkQueue(name).physical[CLASSES.index(class_of(priority))]


@pytest.mark.parametrize(
    ("priority", "expected"),
    [
        (None, "medium"),
        *((priority, "low") for priority in (0, 1, 2)),
        *((priority, "medium") for priority in (3, 4, 5, 6)),
        *((priority, "high") for priority in (7, 8, 9)),
    ],
)
def test_each_priority_has_a_class(priority: int | None, expected: PriorityClass) -> None:
    assert class_of(priority) == expected


@pytest.mark.parametrize("priority", [-1, 10, 255, -(10**30), 10**30])
def test_a_priority_outside_0_to_9_is_refused(priority: int) -> None:
    with pytest.raises(InvalidOption, match="priority="):
        class_of(priority)


@pytest.mark.parametrize("name", ["a", "a" * 192, "ä" * 96, "shop.images", "größe", "two words", "p.high", "taskmqs"])
def test_a_valid_name_is_unchanged(name: str) -> None:
    assert check_queue_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", " a", "a ", "a" * 193, "ä" * 97, "a\n", "a\tb", "a\x00b", "\x7f", "a\u200bb", "\ud800", "a\udfff"),
        *("*", "#", "a.*.b", "a.#"),
        *("amq.gen", "amq.", "taskmq.parking", "taskmq.", "a.dlq", "a.p.high", "a.p.low", ".dlq", ".p.high"),
        *("a.s00", "a.s99", ".s42"),
    ],
    ids=ascii,
)
def test_an_invalid_queue_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="queue name"):
        check_queue_name(name)


@given(st.text(alphabet=st.characters(), max_size=200))
def test_any_text_is_a_name_or_a_typed_error(text: str) -> None:
    try:
        assert check_queue_name(text) == text
    except InvalidOption:
        return
    assert 1 <= len(text.encode()) <= 192


def test_a_physical_queue_and_its_dead_letter_queue_map_to_the_same_name() -> None:
    for name in ("a", "a.p.high", "a.p.low", "a.dlq"):
        assert dead_letter_queue(name) == "a.dlq"


# Kinds of queues


def test_a_queue_with_native_priorities_is_one_queue_beside_that_of_the_store() -> None:
    assert WorkQueue("a", "classic", priorities="native").physical == ("a", "a.jobs", "a.parcels")


def test_an_ordered_queue_consists_of_its_shards() -> None:
    assert WorkQueue("a", ordered=3).physical == ("a.s00", "a.s01", "a.s02", "a.jobs")
    assert len(set(WorkQueue("a", ordered=100).physical)) == 101


def test_only_the_medium_class_of_a_queue_exists_from_the_start() -> None:
    assert WorkQueue("q").always == ("q",)
    assert WorkQueue("q", "classic", priorities="native").always == ("q",)
    assert WorkQueue("q", ordered=2).always == ("q.s00", "q.s01")
    assert [name for name in WorkQueue("q").physical if is_class_queue(name)] == ["q.p.high", "q.p.low"]
    assert not any(map(is_class_queue, ("q", "q.dlq", "q.s00", "p.high")))


@given(_names)
def test_only_shards_are_shards(name: str) -> None:
    assert all(is_shard(physical) for physical in WorkQueue(name, ordered=100).always)
    assert not any(is_shard(physical) for physical in (*WorkQueue(name).physical, dead_letter_queue(name)))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"kind": "stream"}, "kind='stream'"),
        ({"policy": "lottery"}, "policy='lottery': one of fifo"),
        ({"record": "some"}, "record='some': 'failures' or 'all'"),
        ({"priorities": "strict"}, "priorities='strict'"),
        ({"ordered": 0}, "ordered=0"),
        ({"ordered": 101}, "ordered=101"),
        ({"ordered": True}, "ordered=True"),
        ({"lanes": 1}, "lanes=1: a whole number from 2 to 64"),
        ({"lanes": 65}, "lanes=65"),
        ({"lanes": 2, "ordered": 2}, "lanes exclude"),
        ({"lanes": 2, "priorities": "native"}, "lanes exclude"),
        ({"max_length": 0}, "max_length=0"),
        ({"max_length": "10"}, "max_length='10'"),
        ({"max_bytes": -1}, "max_bytes=-1"),
        ({"delivery_limit": 0}, "delivery_limit=0"),
        ({"delivery_limit": 2**31}, "delivery_limit=2147483648"),
        ({"delivery_limit": 5, "kind": "classic"}, "a classic queue has none"),
        ({"ordered": 2, "priorities": "native"}, "exclude each other"),
    ],
)
def test_an_invalid_queue_description_is_refused_with_its_name(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        WorkQueue("orders", **options)

    assert "'orders'" in str(caught.value)
    assert complaint in str(caught.value)


def test_a_queue_description_with_an_invalid_name_is_refused() -> None:
    with pytest.raises(InvalidOption, match="queue name"):
        WorkQueue("orders.s01")
    with pytest.raises(InvalidOption, match="queue name"):
        WorkQueue("orders.lane01")


def test_the_lanes_of_a_queue_and_a_slow_one_exist_from_the_start() -> None:
    queue = WorkQueue("orders", lanes=2)

    assert queue.physical == (
        "orders.lane00",
        "orders.lane01",
        "orders",
        "orders.p.low",
        "orders.jobs",
        "orders.parcels",
    )
    assert queue.always == queue.physical[:-2]
    assert [name for name in queue.physical if is_lane(name)] == list(lanes_of("orders", 2))
    assert slow_lane("orders") in queue.physical
    assert queue.choose_physical(priority=None, order_key=None) == "orders"


def test_a_queue_is_limited_by_either_limit() -> None:
    assert not WorkQueue("a").is_limited
    assert WorkQueue("a", max_length=1).is_limited
    assert WorkQueue("a", max_bytes=1).is_limited


# Routing of messages


@given(_names, st.none() | st.integers(0, 9))
def test_priority_selects_the_class_queue(name: str, priority: int | None) -> None:
    queue = WorkQueue(name)

    assert queue.choose_physical(priority=priority, order_key=None) == class_queue(name, priority)
    assert queue.native_priority(priority) is None


@given(_names, st.text(min_size=1), st.integers(1, 100))
def test_the_key_selects_the_shard_of_an_ordered_queue(name: str, key: str, count: int) -> None:
    queue = WorkQueue(name, ordered=count)

    place = queue.choose_physical(priority=None, order_key=key)

    assert place == queue.physical[shard_of(key, count)]
    assert queue.native_priority(None) is None


def test_the_shard_of_a_key_is_the_same_in_every_version_and_language() -> None:
    # The rule of `docs/wire.md`: queues of users hold messages placed by it.
    for key in ("customer-1", "größe", "雨", " "):
        number = int(hashlib.sha256(key.encode()).hexdigest()[:8], 16)
        assert [shard_of(key, count) for count in (1, 7, 100)] == [number % 1, number % 7, number % 100]
    assert [shard_of(f"customer-{n}", 16) for n in range(8)] == [14, 12, 2, 11, 4, 10, 1, 14]


def test_keys_spread_evenly_over_the_shards() -> None:
    for form in ("customer-{}", "{}", "{:08d}", "urn:order:{}:eu"):
        shares = Counter(shard_of(form.format(number), 16) for number in range(16_000))
        assert len(shares) == 16
        assert 850 <= min(shares.values()) <= max(shares.values()) <= 1150


@pytest.mark.parametrize(
    ("options", "priority", "key", "complaint"),
    [
        ({"ordered": 2}, None, None, "needs an order_key"),
        ({"ordered": 2}, 5, "k", "priority=5"),
        ({"lanes": 2}, 5, None, "has lanes, so priority=5"),
        ({"lanes": 2}, None, "k", "needs an ordered queue"),
        ({}, None, "k", "needs an ordered queue"),
        ({"priorities": "native"}, None, "k", "needs an ordered queue"),
        ({"priorities": "native"}, 10, None, "priority=10"),
    ],
)
def test_a_message_without_a_suitable_queue_is_refused(
    options: dict[str, Any], priority: int | None, key: str | None, complaint: str
) -> None:
    with pytest.raises(InvalidOption, match=complaint):
        WorkQueue("orders", **options).choose_physical(priority=priority, order_key=key)


def test_the_physical_queue_of_a_message_depends_on_its_key_or_its_priority() -> None:
    ordered, native = WorkQueue("orders", ordered=2), WorkQueue("orders", kind="classic", priorities="native")

    shards = {ordered.choose_physical(priority=None, order_key=str(number)) for number in range(20)}

    assert shards <= set(ordered.physical)
    assert len(shards) == 2
    assert native.choose_physical(priority=9, order_key=None) == "orders"
    assert WorkQueue("orders").choose_physical(priority=9, order_key=None) == class_queue("orders", 9)


@given(st.sampled_from(["classic", "quorum"]), st.integers(0, 9), st.integers(0, 9))
def test_native_priorities_keep_the_order_of_the_numbers(kind: Any, one: int, other: int) -> None:
    queue = WorkQueue("a", kind, priorities="native")
    lower, higher = (queue.native_priority(priority) for priority in sorted((one, other)))

    assert queue.choose_physical(priority=one, order_key=None) == "a"
    assert lower is not None
    assert higher is not None
    assert 0 <= lower <= higher <= (4 if kind == "classic" else 9)


def test_a_missing_native_priority_is_in_the_middle() -> None:
    assert WorkQueue("a", "quorum", priorities="native").native_priority(None) == 4
    assert WorkQueue("a", "classic", priorities="native").native_priority(None) == 2
    assert [WorkQueue("a", "classic", priorities="native").native_priority(n) for n in range(10)] == [
        *(0, 0, 1, 1, 2, 2, 3, 3, 4, 4)
    ]


@pytest.mark.parametrize("key", ["", "k" * 256, "ä" * 128, None, 7, b"k"])
def test_an_invalid_key_is_refused(key: object) -> None:
    with pytest.raises(InvalidOption, match="order_key"):
        check_order_key(key)


def test_a_valid_key_is_unchanged() -> None:
    assert check_order_key("ä" * 127) == "ä" * 127


def test_a_queue_with_placement_on_nodes_has_no_order() -> None:
    with pytest.raises(InvalidOption, match="ordered and placed exclude each other"):
        WorkQueue("q", ordered=2, placed=True)


@pytest.mark.parametrize("queue", ["orders", "orders.p.low", "orders.s03", "orders.lane01", "taskmq.node.gpu"])
def test_a_job_queue_is_recognised_by_its_name(queue: str) -> None:
    assert is_work_queue(queue)


@pytest.mark.parametrize(
    "queue", ["orders.dlq", "taskmq.node.gpu.dlq", "taskmq.parking", "taskmq.reports.shop.0", "amq.gen-x", ""]
)
def test_any_other_queue_is_not_a_job_queue(queue: str) -> None:
    assert not is_work_queue(queue)


def test_the_reports_queue_of_a_partition_is_recognised_by_its_name() -> None:
    assert is_reports_queue(reports_queue("shop", 7))
    assert not is_reports_queue("shop.7")


def test_the_queues_of_a_node_are_recognised_by_their_names() -> None:
    assert all(map(is_node_queue, (node_queue("gpu-1"), jobs_queue(node_queue("gpu-1")))))
    assert not is_node_queue("gpu-1.jobs")
