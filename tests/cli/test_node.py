"""`taskmq node`."""

import asyncio
from pathlib import Path

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.model.nodes import NewAllocation, NodeTold
from taskmq_sql import open_job_store
from tests.cli.kit import Here, Result

_APP = 'from taskmq import TaskMQ\n\napp = TaskMQ(store="sqlite:///jobs.db")\n'


class Shop:
    """The command line of an app, with parsed output."""

    def __init__(self, taskmq: Here) -> None:
        self._taskmq = taskmq

    def __call__(self, *words: str) -> Result:
        return self.table(*words, "-o", "json")

    def table(self, *words: str) -> Result:
        return self._taskmq(*words, "--app", "shop:app")


async def _fill(path: Path) -> None:
    store = open_job_store(f"sqlite:///{path}", BrokerOptions(name="test"))
    await store.nodes.report(
        [NodeTold(name="gpu-1", capacity={"cpu": 8.0, "memory": 2.0**30}, labels={"region": "eu"})]
    )
    await store.nodes.allocate(
        NewAllocation(id="0193a1f2-7c1e-7abc-8def-0123456789ab", node=None, amounts={"cpu": 2.0}, job="theirs")
    )
    await store.aclose()


@pytest.fixture
def shop(home: Path, taskmq: Here) -> Shop:
    (home / "shop.py").write_text(_APP)
    asyncio.run(_fill(home / "jobs.db"))
    return Shop(taskmq)


def test_nodes_are_listed_and_shown(shop: Shop) -> None:
    (row,) = shop("node", "list").data

    assert (row["name"], row["status"], row["capacity"], row["used"], row["labels"]) == (
        "gpu-1",
        "available",
        {"cpu": 8.0, "memory": 2.0**30},
        {"cpu": 2.0},
        {"region": "eu"},
    )
    assert shop("node", "show", row["node_id"]).data["name"] == "gpu-1"
    missing = shop("node", "show", "other")
    assert (missing.code, missing.err) == (
        3,
        "taskmq: node 'other' not found\ntaskmq: list the nodes with `taskmq node list`\n",
    )


def test_node_tables_use_readable_amounts(shop: Shop) -> None:
    listed = shop.table("node", "list").out.splitlines()[1].split()
    allocated = shop.table("node", "allocations").out

    assert listed[:5] == ["gpu-1", "available", "cpu=8,", "memory=1G", "cpu=2"]
    assert "gpu-1" in allocated
    assert "theirs" in allocated


def test_a_node_is_drained_resumed_and_removed(shop: Shop) -> None:
    assert shop("node", "drain", "gpu-1").data["status"] == "draining"
    assert shop("node", "resume", "gpu-1").data["status"] == "available"
    assert shop("node", "remove", "gpu-1").code == 1
    assert len(shop("node", "list").data) == 1

    assert shop("node", "remove", "gpu-1", "--yes").code == 0

    assert shop("node", "list").data == []
    assert shop("node", "drain", "gpu-1").code == 3


def test_allocations_are_listed(shop: Shop) -> None:
    (row,) = shop("node", "allocations").data

    assert (row["job_id"], row["amounts"], row["end_time"]) == ("theirs", {"cpu": 2.0}, None)
    assert shop("node", "allocations", "--node", "other", "--ended").data == []
