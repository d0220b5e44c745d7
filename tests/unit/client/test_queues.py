"""Queues described by an app, and its checks when tasks are registered and sent."""

import asyncio
from typing import Any

import pytest

from taskmq import (
    BrokerUnavailable,
    Context,
    InvalidArguments,
    InvalidOption,
    Middleware,
    Sending,
    TaskMQ,
    WorkQueue,
    task,
)
from taskmq.client.lanes import lane_pair
from taskmq.client.queues import Queues
from taskmq.model.topology import shard_of
from taskmq.testing.flaky_broker import FlakyBroker
from tests.unit.app_kit import message, messages, new_url

ORDERS = WorkQueue("orders", ordered=4)


def app_with(*queues: WorkQueue, **options: Any) -> TaskMQ:
    return TaskMQ(new_url(), queues=queues, **options)


def place(key: str) -> str:
    return f"orders.s{shard_of(key, 4):02d}"


def test_a_described_queue_has_its_options_and_defaults_for_the_rest() -> None:
    described = WorkQueue("orders", "classic", max_length=10)
    app = app_with(described)

    assert app.producer.queue("orders") is described
    assert app.producer.queue("mails") == WorkQueue("mails")


def test_a_queue_described_twice_is_refused() -> None:
    with pytest.raises(InvalidOption, match="'orders' is described twice"):
        app_with(WorkQueue("orders"), ORDERS)


def test_an_invalid_queue_name_is_refused() -> None:
    with pytest.raises(InvalidOption, match="queue name"):
        Queues(()).get("a.dlq")


def test_an_app_has_the_queues_of_its_tasks_and_its_described_queues() -> None:
    app = app_with(ORDERS, WorkQueue("reports", "classic"))

    @app.task(queue="mails")
    def mail() -> None: ...

    assert app.tasks.queues == [WorkQueue("mails"), ORDERS, WorkQueue("reports", "classic")]


def test_a_task_with_an_order_key_needs_an_ordered_queue() -> None:
    app = app_with(ORDERS)

    with pytest.raises(InvalidOption, match=r"pay: order_key needs an ordered queue, which 'default' is not"):

        @app.task(order_key="customer")
        def pay(customer: str) -> None: ...

    assert app.tasks == {}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "needs an order_key"),
        ({"order_key": "customer", "priority": 9}, "omit priority"),
        ({"order_key": "customer", "ack": "early"}, "ack='early'"),
    ],
)
def test_a_task_of_an_ordered_queue_needs_a_key_and_what_keeps_order(options: Any, complaint: str) -> None:
    app = app_with(ORDERS)

    with pytest.raises(InvalidOption, match="'orders' is ordered") as caught:

        @app.task(queue="orders", name="pay", **options)
        def pay(customer: str) -> None: ...

    assert "task pay" in str(caught.value)
    assert complaint in str(caught.value)


def test_the_default_queue_may_be_the_ordered_one() -> None:
    app = app_with(ORDERS, default_queue="orders")

    @app.task(order_key="customer")
    def pay(customer: str) -> None: ...

    with pytest.raises(InvalidOption, match="needs an order_key"):
        app.task(lambda: None)
    assert pay.queue == "orders"


def test_an_included_task_is_checked_when_it_is_included() -> None:
    @task(queue="orders", order_key="customer", name="pay")
    def pay(customer: str) -> None: ...

    module = type(pytest)("module")
    module.pay = pay  # type: ignore[attr-defined]
    with pytest.raises(InvalidOption, match="needs an ordered queue"):
        app_with().include(module)

    app = app_with(ORDERS)
    app.include(module)
    assert "pay" in app.tasks


@pytest.mark.parametrize("value", [7, None, b"x"])
def test_an_order_key_has_to_be_a_name_or_a_function(value: Any) -> None:
    with pytest.raises(InvalidOption, match="order_key="):
        task(queue="orders", order_key=value)(lambda: None)


def test_a_schedule_of_an_ordered_task_needs_a_key_without_arguments() -> None:
    app = app_with(ORDERS)

    @app.every("1m")
    @app.task(queue="orders", order_key="customer")
    def works(customer: str = "house") -> None: ...

    with pytest.raises(InvalidOption, match="must run without arguments"):

        @app.every("1m")
        @app.task(queue="orders", order_key="customer")
        def fails(customer: str | None = None) -> None: ...


# Order at the sender


def test_a_job_goes_to_the_shard_of_its_key_and_carries_the_key() -> None:
    app = app_with(ORDERS)

    @app.task(queue="orders", order_key="customer")
    def pay(customer: str, amount: int) -> None: ...

    pay.send("ann", 1)

    found = message(app, place("ann"))
    assert found.envelope.order_key == "ann"
    assert found.envelope.priority is None


def test_the_key_of_a_call_overrides_the_key_of_the_task() -> None:
    app = app_with(ORDERS)

    @app.task(queue="orders", order_key="customer")
    def pay(customer: str) -> None: ...

    pay.options(order_key="all").send("ann")

    assert message(app, place("all")).envelope.order_key == "all"


def test_jobs_with_one_key_are_sent_in_order() -> None:
    app = app_with(ORDERS)

    @app.task(queue="orders", order_key=lambda customer, _: customer)
    def pay(customer: str, amount: int) -> None: ...

    pay.send_many([(f"c{n % 5}", n) for n in range(50)])

    for number in range(5):
        amounts = [
            int(bytes(each.envelope.args).decode().rpartition(",")[2].strip("]"))
            for each in messages(app, place(f"c{number}"))
            if each.envelope.order_key == f"c{number}"
        ]
        assert amounts == list(range(number, 50, 5))


def test_a_call_to_another_queue_has_to_match_its_kind() -> None:
    app = app_with(ORDERS)

    @app.task(queue="orders", order_key="customer")
    def pay(customer: str) -> None: ...

    @app.task
    def mail(customer: str) -> None: ...

    with pytest.raises(InvalidOption, match="'default': order_key needs an ordered queue"):
        pay.options(queue="default").send("ann")
    with pytest.raises(InvalidOption, match="'orders': it is ordered, so each job needs an order_key"):
        mail.options(queue="orders").send("ann")
    with pytest.raises(InvalidOption, match="'orders': it is ordered, so priority=9"):
        pay.options(priority=9).send("ann")
    with pytest.raises(InvalidOption, match="'default': order_key needs an ordered queue"):
        mail.options(order_key="ann").send("ann")

    mail.options(queue="orders", order_key="ann").send("ann")
    assert message(app, place("ann")).envelope.task == mail.name


def test_arguments_without_a_valid_key_are_refused_and_nothing_is_sent() -> None:
    app = app_with(ORDERS)

    @app.task(queue="orders", order_key="customer")
    def pay(customer: str | None) -> None: ...

    with pytest.raises(InvalidArguments, match="order_key"):
        pay.send(None)


def test_middleware_that_changes_the_queue_obeys_the_same_rules() -> None:
    class Redirect(Middleware):
        def send(self, sending: Sending) -> None:
            sending.queue = "elsewhere"

    app = app_with(ORDERS, middleware=[Redirect()])

    @app.task(queue="orders", order_key="customer")
    def pay(customer: str) -> None: ...

    with pytest.raises(InvalidOption, match="'elsewhere': order_key needs an ordered queue"):
        pay.send("ann")


@pytest.mark.real_time
async def test_a_running_task_knows_its_key() -> None:
    app = app_with(ORDERS)
    seen: list[str | None] = []

    @app.task(queue="orders", order_key="customer")
    async def pay(context: Context, customer: str) -> None:
        seen.append(context.order_key)

    from taskmq.worker import Worker, WorkerConfig

    await pay.asend("ann")
    await Worker(app, WorkerConfig(burst=True)).run()
    assert seen == ["ann"]


def test_a_queue_with_native_priorities_takes_all_jobs() -> None:
    app = app_with(WorkQueue("jobs", "classic", priorities="native"))

    @app.task(queue="jobs")
    def work(n: int) -> None: ...

    for priority in (0, 9, 5):
        work.options(priority=priority).send(priority)

    assert [each.envelope.priority for each in messages(app, "jobs")] == [0, 9, 5]


def _waiting(app: TaskMQ, queue: WorkQueue) -> dict[str, list[str | None]]:
    """Return the tenants of the jobs in each nonempty physical queue."""
    found = {name: [each.envelope.tenant for each in messages(app, name)] for name in queue.always}
    return {name: tenants for name, tenants in found.items() if tenants}


def _app_with_lanes() -> tuple[TaskMQ, Any]:
    app = app_with(MAIL)

    @app.task(queue="mail")
    def post(number: int) -> None: ...

    return app, post


MAIL = WorkQueue("mail", lanes=16)


def test_a_task_of_a_queue_with_lanes_has_priorities_only_in_the_store() -> None:
    app = app_with(MAIL)

    with pytest.raises(InvalidOption, match=r"post: its queue 'mail' has lanes, so omit priority="):

        @app.task(name="post", queue="mail", priority=9)
        def post() -> None: ...

    @app.task(name="stored", queue="mail", priority=9, lane="store")
    def stored() -> None: ...

    assert "stored" in app.tasks


def test_jobs_of_a_tenant_use_its_two_lanes_and_other_jobs_the_queue_itself() -> None:
    app, post = _app_with_lanes()
    first, second = (f"mail.lane{number:02d}" for number in lane_pair("acme", 16))

    post.options(tenant="acme").send(1)
    post.options(tenant="acme").send_many([(2,), (3,), (4,)])
    post.send(5)

    assert _waiting(app, MAIL) == {first: ["acme"] * 2, second: ["acme"] * 2, "mail": [None]}


def test_a_priority_is_refused_for_a_job_of_a_queue_with_lanes() -> None:
    _, post = _app_with_lanes()

    with pytest.raises(InvalidOption, match="has lanes, so priority=9"):
        post.options(tenant="acme", priority=9).send(1)


def test_a_tenant_that_floods_goes_to_the_slow_lane() -> None:
    app, post = _app_with_lanes()

    async def flood() -> dict[str, int]:
        async with app:
            broker = app.sessions.current().broker
            await broker.declare([MAIL])
            # The first send declares; the next one triggers a poll.
            await post.options(tenant="flood").asend(1)
            await post.options(tenant="flood").asend(2)
            await looks_ended()
            await post.options(tenant="flood").asend_many((number,) for number in range(500))
            return {entry.queue: entry.ready for entry in await broker.stats(MAIL.always)}

    ready = asyncio.run(flood())

    # The poll has counted the first two in its lanes.
    assert ready.pop("mail.p.low") == 502 - 29
    assert sum(ready.values()) == 29


def test_a_tenant_stays_in_its_two_lanes_if_the_broker_reports_no_lengths() -> None:
    app, post = _app_with_lanes()

    async def flood() -> dict[str, int]:
        async with app:
            session = app.sessions.current()
            broker = session.broker = FlakyBroker(session.broker)
            broker.fail_calls("stats", 1, BrokerUnavailable("gone"))
            for number in range(100):
                await post.options(tenant="flood").asend(number)
            await looks_ended()
            return {entry.queue: entry.ready for entry in await broker.stats(MAIL.always) if entry.ready}

    assert asyncio.run(flood()) == {f"mail.lane{number:02d}": 50 for number in lane_pair("flood", 16)}


async def looks_ended() -> None:
    """Wait until every poll of the lanes has ended."""
    await asyncio.gather(*(each for each in asyncio.all_tasks() if each.get_name() == "taskmq session"))
