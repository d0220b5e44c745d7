"""Errors about names that are too long."""

from collections.abc import Callable

import pytest

from taskmq.errors import InvalidOption
from taskmq.model.envelope import check_task_name
from taskmq.model.identity.names import check_answerer, check_group, check_name
from taskmq.model.jobs.pools import TenantPool
from taskmq.model.jobs.quotas import Quota
from taskmq.model.nodes.host_nodes import check_labels, check_node_name
from taskmq.model.topology import check_order_key, check_queue_name
from taskmq.options.keys import check_key
from taskmq.run.member import check_group as check_run_group
from taskmq.schedules.definition import check_schedule_name
from taskmq.workflow.runs.service import check_run_id

_CHECKS: list[Callable[[str], object]] = [
    check_task_name,
    check_queue_name,
    check_node_name,
    check_run_id,
    check_group,
    check_run_group,
    check_answerer,
    check_order_key,
    lambda name: check_schedule_name(name + "\n"),
    lambda name: check_labels({name: "a"}, what="labels"),
    lambda name: check_key(name, option="key"),
    lambda name: check_name(name, what="user"),
    lambda name: TenantPool(name=name),
    lambda name: Quota(tenant=name, user=name),
]


@pytest.mark.parametrize("check", _CHECKS)
def test_an_error_about_a_long_name_shows_only_its_beginning(check: Callable[[str], object]) -> None:
    with pytest.raises(InvalidOption) as caught:
        check("n" * 10_000)

    assert "nnn" in str(caught.value)
    assert len(str(caught.value)) < 400
