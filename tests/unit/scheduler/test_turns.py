"""Order of the notices of alerts while receivers are slow."""

import pytest

from taskmq.contracts.history import AlertNotice
from taskmq.model.history.alerts import AlertRule
from taskmq.scheduler.alerts.turns import NoticeTurns


def _notice(tenant: str, host: str, number: int = 0) -> AlertNotice:
    rule = AlertRule(name="fails", metric="failures", threshold=1, tenant=tenant)
    return AlertNotice(id=f"{tenant}-{host}-{number}", channel=f"https://{host}/x", rule=rule, changes=[], at=0)


def test_a_tenant_has_at_most_two_notices_in_progress_and_one_per_host() -> None:
    turns = NoticeTurns()
    one, two = _notice("acme", "a.test"), _notice("acme", "b.test")

    turns.begin(one, 0)
    assert turns.turn(0).tenants == set()
    assert turns.turn(0).hosts == {("acme", "a.test")}
    turns.begin(two, 0)
    assert turns.turn(0).tenants == {"acme"}
    turns.end(one, 1)

    assert turns.turn(1).tenants == set()
    assert turns.turn(1).hosts == {("acme", "b.test")}


def test_the_tenants_behind_the_last_one_come_next() -> None:
    turns = NoticeTurns()
    assert turns.turn(0).after == ""

    turns.begin(_notice("beta", "h"), 0)

    assert turns.turn(0).after == "beta"


def test_slow_hosts_share_two_connections_across_tenants() -> None:
    turns = NoticeTurns()
    hosts = [("acme", "a"), ("beta", "b"), ("gamma", "c")]
    for tenant, host in hosts:
        turns.begin(_notice(tenant, host), 0)
        turns.end(_notice(tenant, host), 5)

    turns.begin(_notice("acme", "a", 1), 5)
    assert turns.turn(5).hosts == {("acme", "a")}
    turns.begin(_notice("beta", "b", 1), 5)
    assert turns.turn(5).hosts == set(hosts)
    turns.begin(_notice("delta", "d"), 5)
    turns.end(_notice("beta", "b", 1), 6)

    # It was fast this time.
    assert turns.turn(6).hosts == {("acme", "a"), ("delta", "d")}


def test_a_host_is_not_slow_forever() -> None:
    turns = NoticeTurns()
    for host in ("a", "b", "c"):
        turns.begin(_notice("acme", host), 0)
        turns.end(_notice("acme", host), 5)
    for host in ("a", "b"):
        turns.begin(_notice("acme", host, 1), 600)

    assert ("acme", "c") in turns.turn(604).hosts
    assert ("acme", "c") not in turns.turn(605).hosts


@pytest.mark.parametrize("count", [200, 500])
def test_the_latest_of_very_many_slow_hosts_are_known(count: int) -> None:
    turns = NoticeTurns()
    for number in range(count):
        turns.begin(_notice("acme", f"h{number}"), 0)
        turns.end(_notice("acme", f"h{number}"), 5)
    for number in (count - 1, count - 2):
        turns.begin(_notice("beta", f"h{number}"), 5)
        turns.begin(_notice("acme", f"h{number}"), 5)

    assert sum(tenant == "acme" for tenant, _ in turns.turn(5).hosts) == 200
