import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.broker_abilities import Diagnosable
from taskmq_redis import open_state
from taskmq_redis.doctor import diagnose, parse_info

_WELL = """\
# Server
redis_version:7.0.15

# Persistence
aof_enabled:1
# Memory
maxmemory_policy:noeviction
# Replication
role:master
"""


def test_a_healthy_server_gets_no_advice() -> None:
    findings = diagnose(parse_info(_WELL))

    assert [finding[0] for finding in findings] == ["ok"] * 4
    assert "7.0.15" in findings[0][2]
    assert all(finding[3] == "" for finding in findings)


@pytest.mark.parametrize(
    ("well", "ill", "level", "about", "remedy"),
    [
        ("role:master", "role:slave", "problem", "role", "name the primary"),
        ("policy:noeviction", "policy:allkeys-lru", "problem", "eviction", "noeviction"),
        ("policy:noeviction", "policy:volatile-ttl", "warning", "eviction", "noeviction"),
        ("aof_enabled:1", "aof_enabled:0", "warning", "durability", "appendonly yes"),
    ],
)
def test_settings_that_may_lose_jobs_are_found_with_their_remedy(
    well: str, ill: str, level: str, about: str, remedy: str
) -> None:
    found = [finding for finding in diagnose(parse_info(_WELL.replace(well, ill))) if finding[0] != "ok"]

    assert [(finding[0], finding[1]) for finding in found] == [(level, about)]
    assert remedy in found[0][3]


def test_the_state_can_be_diagnosed() -> None:
    assert isinstance(open_state("redis://localhost", BrokerOptions()), Diagnosable)
