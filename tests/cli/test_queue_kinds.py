"""What the commands do with queues that the app describes, and with what a worker is told about classes."""

from pathlib import Path

import pytest

from tests.cli.kit import Here, names_in

ORDERED = """
from taskmq import TaskMQ, WorkQueue

app = TaskMQ(queues=[WorkQueue("orders", ordered=2)])


@app.task(queue="orders", order_key="customer")
async def pay(customer: str) -> None: ...
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


def test_the_shards_of_an_app_s_queue_are_listed_and_purged(orders: Path, taskmq: Here) -> None:
    assert taskmq("worker", "orders:app", "--burst").code == 0
    for key in ("a", "c"):
        taskmq("--app", "orders:app", "send", "orders.pay", "--args", f'["{key}"]', "--order-key", key)

    listed = taskmq("-o", "json", "--app", "orders:app", "queue", "list")
    purged = taskmq("--app", "orders:app", "queue", "purge", "orders", "--yes")

    ready = {row["queue"]: row["ready"] for row in listed.data}
    assert (ready["orders.s00"], ready["orders.s01"], ready["orders.dlq"]) == (1, 1, 0)
    assert (purged.code, names_in("orders.s00"), names_in("orders.s01")) == (0, [], [])


@pytest.mark.parametrize("weights", ["16:4", "1:2:0", "a:b:c", "1:2:3:4", "-1:1:1"])
def test_weights_that_are_none_are_refused(weights: str, shop: Path, taskmq: Here) -> None:
    refused = taskmq("worker", "shop:app", "--burst", f"--weights={weights}")

    assert refused.code == 2
    assert "--weights" in refused.err


def test_a_worker_takes_weights_and_strictness(shop: Path, taskmq: Here) -> None:
    assert taskmq("worker", "shop:app", "--burst", "--weights=8:2:1", "--starvation-limit=5s").code == 0
    assert taskmq("worker", "shop:app", "--burst", "--strict").code == 0


def test_a_broker_without_an_archive_says_so(shop: Path, taskmq: Here) -> None:
    refused = taskmq("dlq", "archive")

    assert refused.code == 2
    assert "keeps no archive" in refused.err
