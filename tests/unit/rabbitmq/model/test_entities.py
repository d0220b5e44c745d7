import pytest

from taskmq.model.topology import PARKING, QueueKind, ReportQueue, WorkQueue
from taskmq_rabbitmq.model import delay_ladder as delay
from taskmq_rabbitmq.model.entities import (
    Binding,
    Entity,
    Exchange,
    Queue,
    archive,
    declared_arguments,
    entrance,
    events,
    ladder,
    ladder_marker,
    main_queues,
    queues_on_demand,
    report_queue,
    shared_entities,
    topic_queue,
    work_queue,
)

DLQ_ARGUMENTS = {"x-queue-type": "quorum", "x-delivery-limit": 2147483647}


def test_a_quorum_queue_includes_its_classes_and_its_dead_letter_queue() -> None:
    entities = work_queue(WorkQueue("orders"))

    arguments = {
        "x-queue-type": "quorum",
        "x-delivery-limit": 100,
        "x-dead-letter-exchange": "taskmq.dlx",
        "x-dead-letter-routing-key": "orders",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-queue-leader-locator": "balanced",
    }
    assert queues(entities) == {
        "orders.dlq": DLQ_ARGUMENTS,
        "orders.p.high": arguments,
        "orders": arguments,
        "orders.p.low": arguments,
        # Dropped messages of these go to the reports, under their own name.
        "orders.jobs": {**arguments, "x-dead-letter-routing-key": "orders.jobs"},
        # If no worker unpacks parcels any more, the scheduler gets them back.
        "orders.parcels": {
            **arguments,
            "x-dead-letter-routing-key": "orders.parcels",
            "x-message-ttl": 60_000,
        },
    }
    assert bindings(entities) == {
        Binding("taskmq.dlx", "orders.dlq", "orders"),
        *(Binding("taskmq", name, name) for name in ("orders.p.high", "orders", "orders.p.low")),
        *(Binding("taskmq.delay.v2.deliver", name, name) for name in ("orders.p.high", "orders", "orders.p.low")),
        # A delayed message must never become an invitation.
        Binding("taskmq.jobs", "orders.jobs", "orders.jobs"),
        Binding("taskmq.jobs", "orders.parcels", "orders.parcels"),
    }


def test_reports_and_dropped_invitations_are_kept_without_limit() -> None:
    entities = report_queue(ReportQueue("taskmq.reports.shop.3", letters_of=("orders.jobs", "mail.jobs")))

    assert queues(entities) == {"taskmq.reports.shop.3": queues(shared_entities())[PARKING]}
    assert bindings(entities) == {
        Binding("taskmq.reports", "taskmq.reports.shop.3", "taskmq.reports.shop.3"),
        Binding("taskmq.dlx", "taskmq.reports.shop.3", "orders.jobs"),
        Binding("taskmq.dlx", "taskmq.reports.shop.3", "mail.jobs"),
    }


@pytest.mark.parametrize(
    ("queue", "at_once", "later"),
    [
        (WorkQueue("q"), {"q"}, {"q.p.high", "q.p.low", "q.jobs", "q.parcels", "q.dlq"}),
        (WorkQueue("q", "classic"), {"q"}, {"q.p.high", "q.p.low", "q.jobs", "q.parcels", "q.dlq"}),
        (WorkQueue("q", "classic", priorities="native"), {"q"}, {"q.jobs", "q.parcels", "q.dlq"}),
        (WorkQueue("q", ordered=2), {"q.s00", "q.s01"}, {"q.jobs", "q.dlq"}),
        (WorkQueue("q", lanes=2), {"q.lane00", "q.lane01", "q", "q.p.low"}, {"q.jobs", "q.parcels", "q.dlq"}),
        (WorkQueue("q", delivery_limit=3), {"q", "q.dlq"}, {"q.p.high", "q.p.low", "q.jobs", "q.parcels"}),
        (
            WorkQueue("q", max_length=3),
            {"q", "taskmq.late.q"},
            {"q.p.high", "q.p.low", "q.jobs", "q.parcels", "q.dlq"},
        ),
    ],
    ids=["quorum", "classic", "native", "ordered", "lanes", "with a delivery limit", "with a limit"],
)
def test_optional_parts_are_declared_later(queue: WorkQueue, at_once: set[str], later: set[str]) -> None:
    on_demand = queues_on_demand(queue)

    assert set(queues(main_queues(queue))) == at_once
    assert set(on_demand) == later
    assert all(name in queues(entities) for name, entities in on_demand.items())
    parts = [*main_queues(queue), *(entity for entities in on_demand.values() for entity in entities)]
    assert sorted(map(repr, parts)) == sorted(map(repr, work_queue(queue)))


def test_a_queue_created_later_is_reached_by_delayed_messages_too() -> None:
    limited = queues_on_demand(WorkQueue("q", max_length=3))["q.p.high"]

    assert list(queues(limited)) == ["q.p.high", "taskmq.late.q.p.high"]
    assert bindings(limited) == {
        Binding("taskmq", "q.p.high", "q.p.high"),
        Binding("taskmq.delay.v2.deliver", "taskmq.late.q.p.high", "q.p.high"),
    }


def test_a_classic_queue_has_no_quorum_argument() -> None:
    entities = work_queue(WorkQueue("orders", "classic"))

    assert queues(entities)["orders"] == {
        "x-queue-type": "classic",
        "x-dead-letter-exchange": "taskmq.dlx",
        "x-dead-letter-routing-key": "orders",
        "x-overflow": "reject-publish",
    }
    assert queues(entities)["orders.dlq"] == DLQ_ARGUMENTS


def test_a_classic_queue_with_native_priorities_is_one_queue_with_five_levels() -> None:
    entities = work_queue(WorkQueue("orders", "classic", priorities="native"))

    assert queues(entities)["orders"]["x-max-priority"] == 4
    assert set(queues(entities)) == {"orders", "orders.jobs", "orders.parcels", "orders.dlq"}
    assert Binding("taskmq.delay.v2.deliver", "orders", "orders") in bindings(entities)


def test_a_quorum_queue_with_native_priorities_is_an_ordinary_queue() -> None:
    entities = work_queue(WorkQueue("orders", priorities="native"))

    assert set(queues(entities)) == {"orders", "orders.jobs", "orders.parcels", "orders.dlq"}
    assert queues(entities)["orders"] == queues(work_queue(WorkQueue("orders")))["orders"]


@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_the_shards_of_an_ordered_queue_have_one_consumer_at_a_time(kind: QueueKind) -> None:
    entities = work_queue(WorkQueue("orders", kind, ordered=2))

    plain = queues(work_queue(WorkQueue("orders", kind)))
    stored, usual = plain["orders.jobs"], plain["orders"]
    assert queues(entities) == {
        "orders.dlq": DLQ_ARGUMENTS,
        "orders.jobs": stored,
        "orders.s00": {**usual, "x-single-active-consumer": True},
        "orders.s01": {**usual, "x-single-active-consumer": True},
    }
    assert bindings(entities) == {
        Binding("taskmq.dlx", "orders.dlq", "orders"),
        Binding("taskmq.jobs", "orders.jobs", "orders.jobs"),
        *(Binding("taskmq", name, name) for name in ("orders.s00", "orders.s01")),
        *(Binding("taskmq.delay.v2.deliver", name, name) for name in ("orders.s00", "orders.s01")),
    }


def test_each_queue_has_its_limits_and_an_entrance_for_delayed_messages() -> None:
    entities = work_queue(WorkQueue("orders", max_length=10, max_bytes=1000, delivery_limit=3))

    found = queues(entities)
    for name in ("orders.p.high", "orders", "orders.p.low"):
        assert found[name] == {
            **queues(work_queue(WorkQueue("orders")))[name],
            "x-max-length": 10,
            "x-max-length-bytes": 1000,
            "x-delivery-limit": 3,
        }
        assert found[entrance(name)] == {
            "x-queue-type": "quorum",
            "x-message-ttl": 0,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": name,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-queue-leader-locator": "balanced",
        }
        # Bound to the queue itself as well, every message would arrive twice.
        ways = [each for each in bindings(entities) if each.source == delay.DELIVER and each.key == name]
        assert [each.target for each in ways] == [entrance(name)]
    assert not {"x-max-length", "x-max-length-bytes"} & found["orders.jobs"].keys()
    assert len(found) == 9


@pytest.mark.parametrize("name", ["a" * 192, "ä" * 96])
def test_the_longest_name_has_an_entrance(name: str) -> None:
    for queue in WorkQueue(name, max_length=1).physical:
        assert len(entrance(queue).encode()) <= 255


def test_the_shared_queues_keep_their_messages_forever() -> None:
    entities = shared_entities()

    assert queues(entities) == {"taskmq.unroutable": DLQ_ARGUMENTS, "taskmq.parking": DLQ_ARGUMENTS}
    assert bindings(entities) == {
        Binding("taskmq.unroutable", "taskmq.unroutable"),
        Binding("taskmq.dlx", "taskmq.parking", "taskmq.parking"),
    }
    assert exchanges(entities) == {
        # Without an alternate exchange: only a bound queue makes a message routable.
        "taskmq": ("direct", {}),
        "taskmq.jobs": ("direct", {}),
        "taskmq.reports": ("direct", {}),
        "taskmq.unroutable": ("fanout", {}),
        "taskmq.dlx": ("direct", {"alternate-exchange": "taskmq.unroutable"}),
    }


def test_events_go_to_an_exchange_without_taskmq_queues() -> None:
    assert exchanges(events()) == {"taskmq.events": ("topic", {})}
    assert queues(events()) == {}


def test_the_ladder_has_28_levels_and_ends_with_its_marker() -> None:
    entities = ladder()

    assert len(queues(entities)) == 28
    assert len(exchanges(entities)) == 28 + 3
    assert entities[-1] == ladder_marker() == Exchange("taskmq.delay.v2.ready", "fanout")
    assert exchanges(entities)[delay.DELIVER] == ("direct", {"alternate-exchange": "taskmq.unroutable"})
    assert exchanges(entities)[delay.ENTER] == ("direct", {})


@pytest.mark.parametrize("level", range(28))
def test_a_level_holds_messages_for_its_time_and_passes_them_on(level: int) -> None:
    name = f"taskmq.delay.v2.l{level:02d}"

    entities = ladder()

    assert queues(entities)[name] == {
        "x-queue-type": "quorum",
        "x-message-ttl": 125 * 2**level,
        "x-dead-letter-exchange": name,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-queue-leader-locator": "balanced",
    }
    assert Binding("taskmq.delay.v2.enter", name, f">>{level}") in bindings(entities)
    leads = {Binding(name, "taskmq.delay.v2.deliver", f">{level}>", "exchange")}
    for then in range(level + 1, min(level + 4, 27) + 1):
        leads.add(Binding(name, f"taskmq.delay.v2.l{then:02d}", f">{level}>{then}"))
    if level + 4 < 27:
        leads.add(Binding(name, f"taskmq.delay.v2.l{level + 4:02d}", f">{level}~", "exchange"))
    assert {binding for binding in bindings(entities) if binding.source == name} == leads


@pytest.mark.parametrize(
    "entities",
    [
        shared_entities(),
        (*shared_entities(), *ladder()),
        *(
            (*shared_entities(), *ladder(), *work_queue(queue))
            for queue in (WorkQueue("q"), WorkQueue("q", ordered=3), WorkQueue("q", max_length=1))
        ),
    ],
)
def test_bindings_refer_to_declared_objects(entities: tuple[Entity, ...]) -> None:
    known: set[tuple[type[Entity], str]] = set()

    for entity in entities:
        if isinstance(entity, Binding):
            target = Queue if entity.target_kind == "queue" else Exchange
            assert {(Exchange, entity.source), (target, entity.target)} <= known
        else:
            known.add((type(entity), entity.name))


@pytest.mark.parametrize("name", ["a*", "*a", "a.#b", "**"])
def test_a_name_with_a_star_inside_a_word_is_a_name(name: str) -> None:
    assert len(queues(work_queue(WorkQueue(name)))) == 6


def queues(entities: tuple[Entity, ...]) -> dict[str, dict[str, str | int]]:
    return {entity.name: dict(entity.arguments) for entity in entities if isinstance(entity, Queue)}


def exchanges(entities: tuple[Entity, ...]) -> dict[str, tuple[str, dict[str, str | int]]]:
    return {entity.name: (entity.kind, dict(entity.arguments)) for entity in entities if isinstance(entity, Exchange)}


def bindings(entities: tuple[Entity, ...]) -> set[Binding]:
    return {entity for entity in entities if isinstance(entity, Binding)}


def test_the_archive_is_a_stream_limited_by_age_and_by_size() -> None:
    entities = archive("30D", 1000)

    arguments: dict[str, str | int] = {"x-queue-type": "stream", "x-max-age": "30D", "x-max-length-bytes": 1000}
    assert queues(entities) == {"taskmq.dead.archive": arguments}
    # A separate exchange: bound to the letters' exchange, it would make a letter of a deleted queue look routed.
    assert exchanges(entities) == {"taskmq.dead.archive": ("fanout", {})}
    assert bindings(entities) == {Binding("taskmq.dead.archive", "taskmq.dead.archive", "taskmq.dead.archive")}


@pytest.mark.parametrize(("exchange", "declared"), [("sales", [Exchange("sales", "topic")]), ("amq.topic", [])])
def test_a_topic_queue_has_its_exchange_unless_the_broker_provides_it(
    exchange: str, declared: list[Exchange]
) -> None:
    entities = topic_queue("orders", exchange, ["orders.*", "orders.#"])

    assert [each for each in entities if isinstance(each, Exchange)] == declared
    assert [each.name for each in entities if isinstance(each, Queue)] == ["orders"]
    assert len([each for each in entities if isinstance(each, Binding)]) == 2


def test_a_queue_names_its_owner_and_a_shared_one_its_contents() -> None:
    arguments = {"x-queue-type": "quorum"}

    def added_entities(queue: Queue, app: str) -> dict[str, object]:
        return {name: value for name, value in declared_arguments(queue, app).items() if name not in queue.arguments}

    assert added_entities(Queue("orders", arguments), "shop") == {"x-taskmq-app": "shop"}
    assert added_entities(Queue("orders", arguments), "") == {}
    assert added_entities(Queue("taskmq.late.orders", arguments), "shop") == {}
    shared_by_all = [
        entity for entity in (*shared_entities(), *ladder(), *archive("1D", 1)) if isinstance(entity, Queue)
    ]
    assert all(added_entities(queue, "shop").keys() == {"x-taskmq-about"} for queue in shared_by_all)
    level = next(queue for queue in shared_by_all if queue.name.endswith("l15"))
    assert "1:08:16" in str(added_entities(level, "shop"))
