"""Commands on queues described by the app, and a worker's options for classes."""

from pathlib import Path

import pytest

from taskmq import WorkQueue
from tests.cli.kit import Here, bury, declare, names_in

ORDERED = """
from taskmq import TaskMQ, WorkQueue

app = TaskMQ(queues=[WorkQueue("orders", ordered=2)])


@app.task(queue="orders", order_key="customer")
async def pay(customer: str) -> None: ...
"""

LANES = """
from taskmq import TaskMQ, WorkQueue

app = TaskMQ(queues=[WorkQueue("mail", lanes=2)])


@app.task(queue="mail")
async def post(to: str) -> None: ...
"""


@pytest.fixture
def orders(shop: Path) -> Path:
    (shop / "orders.py").write_text(ORDERED)
    return shop


def test_a_job_of_an_ordered_queue_is_sent_to_the_shard_of_its_key(orders: Path, taskmq: Here) -> None:
    assert taskmq("worker", "orders:app", "--burst").code == 0

    send = ("-o", "json", "--app", "orders:app", "send")

    given = taskmq(*send, "somebody.pays", "--force", "--queue", "orders", "--args", '["a"]', "--order-key", "a")
    made = taskmq(*send, "orders.pay", "--args", '["a"]')

    assert (given.code, made.code) == (0, 0)
    assert (given.data["queue"], made.data["queue"]) == ("orders.s00", "orders.s00")
    assert names_in("orders.s00") == [given.data["job"], made.data["job"]]


def test_a_job_of_an_ordered_queue_without_its_key_is_refused(orders: Path, taskmq: Here) -> None:
    refused = taskmq(
        "--app", "orders:app", "send", "somebody.pays", "--force", "--queue", "orders", "--args", '["a"]'
    )

    assert refused.code == 2
    assert "'orders': it is ordered, so each job needs an order_key" in refused.err


def test_the_shards_of_a_queue_are_listed_and_purged(orders: Path, taskmq: Here) -> None:
    assert taskmq("worker", "orders:app", "--burst").code == 0
    for key in ("a", "c"):
        taskmq("--app", "orders:app", "send", "orders.pay", "--args", f'["{key}"]', "--order-key", key)

    listed = taskmq("-o", "json", "--app", "orders:app", "queue", "list")
    purged = taskmq("--app", "orders:app", "queue", "purge", "orders", "--yes")

    ready = {row["queue"]: row["ready"] for row in listed.data}
    assert (ready["orders.s00"], ready["orders.s01"], ready["orders.dlq"]) == (1, 1, 0)
    assert (purged.code, names_in("orders.s00"), names_in("orders.s01")) == (0, [], [])


def test_the_lanes_of_a_queue_are_listed_shown_paused_examined_and_purged(shop: Path, taskmq: Here) -> None:
    (shop / "mail.py").write_text(LANES)
    here = ("-o", "json", "--app", "mail:app")
    assert taskmq("worker", "mail:app", "--burst").code == 0
    for tenant in (("--tenant", "acme"), ("--tenant", "initech"), ()):
        assert taskmq(*here, "send", "mail.post", "--args", '["you"]', *tenant).code == 0

    listed = {row["queue"]: row["ready"] for row in taskmq(*here, "queue", "list").data}
    shown = taskmq(*here, "queue", "show", "mail", "--within", "10ms").data
    examined = taskmq(*here, "doctor")
    paused = taskmq(*here, "queue", "pause", "mail")
    burst = taskmq("worker", "mail:app", "--burst")
    left = taskmq(*here, "queue", "show", "mail", "--within", "10ms").data["ready"]
    purged = taskmq(*here, "queue", "purge", "mail", "--yes")

    assert (listed["mail"], listed["mail.lane00"] + listed["mail.lane01"], listed["mail.p.low"]) == (1, 2, 0)
    assert (shown["ready"], shown["lanes"], shown["priorities"]) == (3, 2, None)
    assert "no consumer, 3 messages wait" in examined.out
    assert (paused.code, burst.code, left) == (0, 0, 3)
    assert "3 messages deleted" in purged.err


def test_a_dead_letter_of_a_former_lane_is_replayed_to_the_queue(shop: Path, taskmq: Here) -> None:
    (shop / "mail.py").write_text(LANES)
    declare(WorkQueue("mail", lanes=4))
    bury("mail.dlq", ["lost"], headers={"x-taskmq-origin": "mail.lane03"})
    here = ("--app", "mail:app", "dlq", "replay", "mail")

    planned = taskmq("-o", "json", *here, "--dry-run").data
    replayed = taskmq(*here)

    assert [row["to"] for row in planned] == ["mail"]
    assert (replayed.code, names_in("mail"), names_in("mail.lane03")) == (0, ["lost"], [])


@pytest.mark.nightly(
    "tests/cli/test_queue_kinds.py::test_the_lanes_of_a_queue_are_listed_shown_paused_examined_and_purged"
)
@pytest.mark.rabbitmq
def test_the_lanes_of_a_queue_in_rabbitmq_are_listed_and_shown(shop: Path, taskmq: Here, amqp_url: str) -> None:
    (shop / "mail.py").write_text(LANES)
    declare(WorkQueue("mail", lanes=2), url=amqp_url)
    here = ("--url", amqp_url, "-o", "json", "--app", "mail:app")
    for tenant in (("--tenant", "acme"), ("--tenant", "initech"), ()):
        assert taskmq(*here, "send", "mail.post", "--args", '["you"]', *tenant).code == 0

    listed = {row["queue"]: row["ready"] for row in taskmq(*here, "queue", "list").data}
    shown = taskmq(*here, "queue", "show", "mail").data

    assert (listed["mail"], listed["mail.lane00"] + listed["mail.lane01"], listed["mail.p.low"]) == (1, 2, 0)
    assert (shown["ready"], shown["lanes"], shown["dead"]) == (3, 2, 0)


@pytest.mark.parametrize("weights", ["16:4", "1:2:0", "a:b:c", "1:2:3:4", "-1:1:1"])
def test_invalid_weights_are_refused(weights: str, shop: Path, taskmq: Here) -> None:
    refused = taskmq("worker", "shop:app", "--burst", f"--weights={weights}")

    assert refused.code == 2
    assert "--weights" in refused.err


def test_a_worker_accepts_weights_and_strictness(shop: Path, taskmq: Here) -> None:
    assert taskmq("worker", "shop:app", "--burst", "--weights=8:2:1", "--starvation-limit=5s").code == 0
    assert taskmq("worker", "shop:app", "--burst", "--strict").code == 0


def test_a_broker_without_an_archive_says_so(shop: Path, taskmq: Here) -> None:
    refused = taskmq("dlq", "archive")

    assert refused.code == 2
    assert "keeps no archive" in refused.err
