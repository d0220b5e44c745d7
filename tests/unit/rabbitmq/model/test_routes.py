import pytest

from taskmq.model.topology import ReportQueue, WorkQueue
from taskmq_rabbitmq.model.entities import Binding, Entity, archive, report_queue, shared_entities, work_queue
from taskmq_rabbitmq.model.routes import PROVEN, Route, route_to

QUEUES = [
    WorkQueue("orders"),
    WorkQueue("steps", ordered=2),
    WorkQueue("mail", lanes=2),
    WorkQueue("taskmq.node.gpu"),
]


@pytest.mark.parametrize("queue", [name for queue in QUEUES for name in queue.always])
def test_jobs_go_to_the_work_exchange_under_the_name_of_their_queue(queue: str) -> None:
    assert route_to(queue) == Route("taskmq", queue)


@pytest.mark.parametrize("queue", ["orders.jobs", "orders.parcels", "taskmq.node.gpu.jobs"])
def test_producers_cannot_write_to_the_exchange_of_invitations(queue: str) -> None:
    assert route_to(queue) == Route("taskmq.jobs", queue)


def test_producers_cannot_write_to_the_exchange_of_reports() -> None:
    assert route_to("taskmq.reports.shop.0") == Route("taskmq.reports", "taskmq.reports.shop.0")
    # Under any name of the app.
    assert route_to("taskmq.reports.shop.jobs") == Route("taskmq.reports", "taskmq.reports.shop.jobs")
    assert route_to("taskmq.reports.shop.dlq") == Route("taskmq.reports", "taskmq.reports.shop.dlq")


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        ("orders.dlq", Route("taskmq.dlx", "orders")),
        ("taskmq.node.gpu.dlq", Route("taskmq.dlx", "taskmq.node.gpu")),
        ("taskmq.parking", Route("taskmq.dlx", "taskmq.parking")),
        ("taskmq.unroutable", Route("taskmq.unroutable", "taskmq.unroutable")),
        ("taskmq.dead.archive", Route("taskmq.dead.archive", "taskmq.dead.archive")),
    ],
)
def test_letters_go_to_the_same_queue_as_those_of_the_broker(queue: str, expected: Route) -> None:
    assert route_to(queue) == expected
    assert expected.exchange not in PROVEN


@pytest.mark.parametrize(
    "entities",
    [
        *(work_queue(queue) for queue in QUEUES),
        report_queue(ReportQueue("taskmq.reports.shop.0", letters_of=("orders.jobs",))),
        (*shared_entities(), *archive("1D", 1000)),
    ],
)
def test_every_published_queue_is_bound_at_its_exchange(entities: tuple[Entity, ...]) -> None:
    bindings = [each for each in entities if isinstance(each, Binding)]
    # Only the ladder reaches an entrance.
    targets = {each.target for each in bindings if not each.target.startswith("taskmq.late.")}

    for target in targets - {"taskmq.unroutable"}:
        assert Binding(route_to(target).exchange, target, route_to(target).key) in bindings


@pytest.mark.parametrize("queue", ["orders", "orders.jobs", "taskmq.reports.shop.0"])
def test_a_routed_message_has_reached_its_queue(queue: str) -> None:
    assert route_to(queue).exchange in PROVEN
