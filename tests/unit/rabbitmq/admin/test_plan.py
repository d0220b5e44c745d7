"""The desired topology compared with the existing one."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from taskmq.contracts.topology_plan import TopologyEntry
from taskmq.model.topology import ReportQueue, WorkQueue
from taskmq_rabbitmq.admin.definitions import found_in, to_definitions
from taskmq_rabbitmq.admin.plan import Found, Trait, compare, find_missing, is_migratable, label, traits
from taskmq_rabbitmq.model import delay_ladder as delay
from taskmq_rabbitmq.model.entities import (
    Binding,
    Entity,
    Exchange,
    Queue,
    archive,
    events,
    ladder,
    main_queues,
    queues_on_demand,
    report_queue,
    shared_entities,
    topic_queue,
    work_queue,
)

QUEUES = [
    WorkQueue("images"),
    WorkQueue("mails", "classic"),
    WorkQueue("orders", ordered=2),
    WorkQueue("few", max_length=9),
]


def wanted_entities(*queues: WorkQueue) -> list[Entity]:
    return [*shared_entities(), *ladder(), *(entity for queue in queues for entity in work_queue(queue))]


def after(found: Found, entities: list[Entity]) -> Found:
    """Return a broker's state after declaring: existing objects stay, a binding needs both ends."""
    exchanges, queues, bindings = dict(found.exchanges), dict(found.queues), set(found.bindings or ())
    for entity in entities:
        match entity:
            case Exchange(name):
                exchanges.setdefault(name, traits(entity))
            case Queue(name):
                queues.setdefault(name, traits(entity))
            case Binding(source, target, _, kind):
                assert source in exchanges
                assert target in (queues if kind == "queue" else exchanges)
                bindings.add(entity)
    return Found(exchanges, queues, frozenset(bindings))


def entry(found: Found, name: str, *queues: WorkQueue) -> TopologyEntry:
    comparison = compare(wanted_entities(*queues), found, queues=queues)
    return next(each for each in comparison.entries if each.name == name)


@settings(max_examples=50, deadline=None)
@given(
    there=st.sets(st.sampled_from(wanted_entities(*QUEUES))), queues=st.lists(st.sampled_from(QUEUES), unique=True)
)
def test_declaring_the_missing_parts_makes_everything_equal(there: set[Entity], queues: list[WorkQueue]) -> None:
    exchanges = {entity.name for entity in there if isinstance(entity, Exchange)}
    names = {"exchange": exchanges, "queue": {entity.name for entity in there if isinstance(entity, Queue)}}
    found = after(
        Found(),
        [
            entity
            for entity in wanted_entities(*QUEUES)
            if entity in there
            and not (
                isinstance(entity, Binding)
                and (entity.source not in exchanges or entity.target not in names[entity.target_kind])
            )
        ],
    )
    before = compare(wanted_entities(*queues), found, queues=queues, declares=False)

    missing = find_missing(wanted_entities(*queues), before)
    comparison = compare(wanted_entities(*queues), after(found, missing), queues=queues, declares=False)

    assert comparison.is_same
    assert not find_missing(wanted_entities(*queues), comparison)
    assert before.is_same == (not missing)


@given(queues=st.lists(st.sampled_from(QUEUES), unique=True))
def test_an_export_reads_back_equal(queues: list[WorkQueue]) -> None:
    definitions = to_definitions(wanted_entities(*queues), "shop")

    found = found_in(definitions["exchanges"], definitions["queues"], definitions["bindings"])

    assert all(each.status == "same" for each in compare(wanted_entities(*queues), found, queues=queues).entries)


def test_a_queue_declared_on_demand_is_not_missing_and_is_still_created() -> None:
    queue = WorkQueue("few", max_length=9)
    found = after(Found(), [*shared_entities(), *ladder(), *main_queues(queue)])

    comparison = compare(wanted_entities(queue), found, queues=[queue])

    assert comparison.is_same
    later = {each.name for each in comparison.entries if each.status == "later" and each.kind == "queue"}
    passages = {"taskmq.late.few.p.high", "taskmq.late.few.p.low"}
    assert later == {"few.p.high", "few.p.low", "few.jobs", "few.parcels", "few.dlq", *passages}
    assert {
        entity.name for entity in find_missing(wanted_entities(queue), comparison) if isinstance(entity, Queue)
    } == later


def test_a_queue_without_its_bindings_is_incomplete() -> None:
    queue = WorkQueue("images")
    made = [entity for entities in queues_on_demand(queue).values() for entity in entities]
    there = [entity for entity in made if isinstance(entity, Queue)]
    found = after(Found(), [*shared_entities(), *ladder(), *main_queues(queue), *there])

    comparison = compare(wanted_entities(queue), found, queues=[queue])

    missing = {each.name for each in comparison.entries if each.status == "missing"}
    assert missing == {label(entity) for entity in made if isinstance(entity, Binding)}


def test_each_differing_argument_is_reported_with_both_values() -> None:
    found = after(Found(), wanted_entities(WorkQueue("images", "classic")))

    different = entry(found, "images", WorkQueue("images"))

    assert different.status == "different"
    assert "x-queue-type: wanted 'quorum', is 'classic'" in different.detail
    assert "x-delivery-limit: wanted 100, is none" in different.detail
    assert "`taskmq topology migrate images`" in different.remedy
    assert is_migratable(different)


def test_a_known_unwanted_argument_is_a_difference_and_an_unknown_one_is_not() -> None:
    found = after(Found(), wanted_entities(WorkQueue("images")))
    there = found.queues["images"]
    assert there is not None
    known = replace(found, queues={**found.queues, "images": {**there, "x-message-ttl": 5}})
    unknown = replace(found, queues={**found.queues, "images": {**there, "x-colour": "red"}})

    assert entry(known, "images", WorkQueue("images")).detail == "x-message-ttl: wanted none, is 5"
    assert entry(unknown, "images", WorkQueue("images")).status == "same"


def test_a_queue_declared_without_a_type_has_the_default_type_of_the_broker() -> None:
    found = found_in(
        [],
        [{"name": "q", "type": "classic", "durable": True, "auto_delete": False, "exclusive": None, "arguments": {}}],
        [],
    )

    assert (found.queues["q"] or {})["x-queue-type"] == "classic"


def test_a_differing_shared_object_needs_no_migration() -> None:
    found = after(Found(), wanted_entities())
    there = found.exchanges[delay.DELIVER]
    assert there is not None
    broken = {name: value for name, value in there.items() if name != "alternate-exchange"}

    different = entry(replace(found, exchanges={**found.exchanges, delay.DELIVER: broken}), delay.DELIVER)

    assert different.detail == "alternate-exchange: wanted 'taskmq.unroutable', is none"
    assert not is_migratable(different)
    assert "apply" in different.remedy


def test_leftovers_are_reported_and_harmless() -> None:
    found = after(Found(), wanted_entities(WorkQueue("orders", ordered=3), WorkQueue("others")))
    more: dict[str, dict[str, Trait]] = {
        "taskmq.delay.v0.l01": {},
        "taskmq.delay.levels.v1.5s": {},
        "taskmq.migration.orders.s00": {},
        "celery": {},
    }
    found = replace(found, queues={**found.queues, **more})

    comparison = compare(
        wanted_entities(WorkQueue("orders", ordered=2)), found, queues=[WorkQueue("orders", ordered=2)]
    )

    extras = {each.name: each for each in comparison.entries if each.status == "extra"}
    assert comparison.is_same
    assert {name for name in extras if not name.startswith("taskmq.delay.v2.deliver")} == {
        "orders.s02",
        "others.dlq",
        "others.jobs",
        "others.p.high",
        "others.p.low",
        "others.parcels",
        "taskmq.delay.levels.v1.5s",
        "taskmq.delay.v0.l01",
        "taskmq.migration.orders.s00",
    }
    assert "nothing puts messages of 'orders' here" in extras["orders.s02"].detail
    assert "which this app does not have" in extras["others.dlq"].detail
    for name in ("taskmq.delay.v0.l01", "taskmq.delay.levels.v1.5s"):
        assert "not of this version" in extras[name].detail
        assert "delete it once it is empty" in extras[name].remedy
    assert "`taskmq topology migrate orders` again" in extras["taskmq.migration.orders.s00"].remedy


def test_queues_that_taskmq_declares_itself_are_not_leftovers() -> None:
    of_node = WorkQueue("taskmq.node.gpu-1", max_length=9)
    reports = report_queue(ReportQueue("taskmq.reports.shop.3", ("orders.jobs",)))
    topics = topic_queue("taskmq.on.shop.paid", "billing", ["*.paid"])
    there = [*events(), *work_queue(of_node), *reports, *topics, *archive("30D", 10**9)]
    queue = WorkQueue("orders")
    found = after(Found(), [*wanted_entities(queue), *there])

    comparison = compare([*wanted_entities(queue), *events()], found, queues=[queue])

    assert [each.name for each in comparison.entries if each.status == "extra"] == []


def test_a_second_binding_from_the_delay_ladder_is_reported() -> None:
    queue = WorkQueue("few", max_length=9)
    found = after(Found(), [*wanted_entities(queue), Binding(delay.DELIVER, "few", "few")])

    extras = [
        each for each in compare(wanted_entities(queue), found, queues=[queue]).entries if each.status == "extra"
    ]

    assert [(each.kind, each.detail) for each in extras] == [("binding", "delayed messages come twice, or astray")]


def test_a_foreign_queue_with_a_taskmq_binding_is_named() -> None:
    queue = WorkQueue("orders")
    there = wanted_entities(queue)
    tap = Binding("taskmq", "tap", "orders")
    # Another app's queue with the correct binding is not one.
    others = {Binding("taskmq", "mail", "mail"), Binding("taskmq.jobs", "mail.jobs", "mail.jobs")}
    bindings = frozenset({*(each for each in there if isinstance(each, Binding)), tap, *others})
    found = Found(
        exchanges={each.name: traits(each) for each in there if isinstance(each, Exchange)},
        queues={each.name: traits(each) for each in there if isinstance(each, Queue)},
        bindings=bindings,
    )

    extras = [each for each in compare(there, found, queues=[queue]).entries if each.status == "extra"]

    assert [(each.kind, each.name) for each in extras] == [("binding", "taskmq -> tap [orders]")]
    assert "although it may be gone" in extras[0].detail


def test_a_name_alone_does_not_prove_equality() -> None:
    found = Found(exchanges={"taskmq.dlx": None}, queues={"images": None}, bindings=None, complete=False)

    comparison = compare(wanted_entities(WorkQueue("images")), found, queues=[WorkQueue("images")])

    statuses = {each.name: each.status for each in comparison.entries}
    assert statuses["images"] == statuses["taskmq.dlx"] == "unseen"
    assert statuses["taskmq.parking"] == "missing"
    assert statuses["images.dlq"] == "later"
    assert {each.status for each in comparison.entries if each.kind == "binding"} == {"unseen"}
