from typing import Any

import pytest

from taskmq.errors import InvalidOption
from taskmq.model.topology import WorkQueue
from taskmq_rabbitmq.admin.isolation import isolation
from taskmq_rabbitmq.model.entities import shared_entities, work_queue

ORDERS = WorkQueue("orders")


def test_a_tenant_gets_a_virtual_host_its_queues_and_a_user_for_each_role() -> None:
    entities = [*shared_entities(), *work_queue(ORDERS)]

    steps = isolation(entities, [ORDERS], tenant="a/b", roles=["worker", "producer", "worker"], app="shop")

    requests: list[Any] = [step.request for step in steps]
    assert [(request["method"], request["path"]) for request in requests] == [
        ("PUT", "/api/vhosts/a%2Fb"),
        ("POST", "/api/definitions/a%2Fb"),
        ("PUT", "/api/users/a%2Fb-worker"),
        ("PUT", "/api/permissions/a%2Fb/a%2Fb-worker"),
        ("PUT", "/api/users/a%2Fb-producer"),
        ("PUT", "/api/permissions/a%2Fb/a%2Fb-producer"),
    ]
    parts = requests[1]["body"]
    assert parts.keys() == {"exchanges", "queues", "bindings"}
    assert not any("vhost" in each for kind in parts.values() for each in kind)
    assert requests[5]["body"]["configure"] == "^$"


@pytest.mark.parametrize("tenant", ["", "/", "t" * 201])
def test_a_name_unsuitable_for_a_virtual_host_is_refused(tenant: str) -> None:
    with pytest.raises(InvalidOption, match="tenant"):
        isolation([], [], tenant=tenant, roles=[], app="")
