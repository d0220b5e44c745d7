"""`taskmq dlq --tenant`: the dead letters of one tenant among others in the same queue."""

import signal
from pathlib import Path

import pytest

from taskmq.model.topology import QueueKind, WorkQueue
from tests.cli.kit import PATIENCE, Here, Started, bury, declare, names_in, run_on_terminal
from tests.servers import eventually

_NAMES = [f"{tenant}-{number:03}" for number in range(60) for tenant in ("acme", "other")]
_ACME, _OTHER = _NAMES[::2], _NAMES[1::2]


def _bury_in_turn(names: list[str], *, url: str = "local://.taskmq") -> None:
    for name in names:
        bury("images.dlq", [name], tenant=name.partition("-")[0], url=url)


@pytest.fixture
def shared_letters(home: Path) -> None:
    """Letters of two tenants, alternating, and one without a tenant."""
    del home
    declare("images")
    _bury_in_turn(_NAMES[:6])
    bury("images.dlq", ["nobody"])


@pytest.mark.usefixtures("shared_letters")
def test_letters_of_one_tenant_or_of_none_are_listed_shown_grouped_and_exported(taskmq: Here) -> None:
    listed = taskmq("dlq", "list", "images", "--tenant", "acme", "-o", "json")
    of_nobody = taskmq("dlq", "list", "images", "--tenant", "", "-o", "json")
    shown = taskmq("dlq", "show", "images", "acme-000", "--tenant", "acme", "-o", "json")
    foreign = taskmq("dlq", "show", "images", "acme-000", "--tenant", "other")
    groups = taskmq("dlq", "groups", "images", "--tenant", "other", "-o", "json")
    exported = taskmq("dlq", "export", "images", "--tenant", "other")

    assert [(row["job_id"], row["tenant"]) for row in listed.data] == [(name, "acme") for name in _ACME[:3]]
    assert [(row["job_id"], row["tenant"]) for row in of_nobody.data] == [("nobody", "")]
    assert (shown.data["tenant"], foreign.code) == ("acme", 3)
    assert [(row["count"], row["sample"]) for row in groups.data] == [(3, "other-000")]
    assert [(row["job"], row["tenant"]) for row in exported.rows] == [(name, "other") for name in _OTHER[:3]]


@pytest.mark.usefixtures("shared_letters")
def test_letters_of_one_tenant_are_replayed_and_purged_among_others(taskmq: Here) -> None:
    replayed = taskmq("dlq", "replay", "images", "--tenant", "acme")
    purged = taskmq("dlq", "purge", "images", "--tenant", "", "--yes")

    assert (replayed.code, replayed.err) == (0, "3 replayed\n")
    assert (purged.code, purged.err) == (0, "1 dead letters deleted\n")
    assert names_in("images") == _ACME[:3]
    assert names_in("images.dlq") == _OTHER[:3]


@pytest.mark.usefixtures("shared_letters")
def test_a_long_error_message_is_one_line_of_a_table_on_a_terminal(home: Path) -> None:
    bury("images.dlq", ["01a20c55-0b1e-7a3c-8f43-d1c2a7b9e001"], error=f"OSError: {'long ' * 100}\nsecond line")

    result = run_on_terminal(home, "dlq", "list", "images", columns=150)

    lines = result.out.splitlines()
    assert (len(lines), max(map(len, lines)) <= 150) == (9, True)
    assert "01a20c55-0b1e-7a3c-8f43-d1c2a7b9e001" in lines[-1]
    assert "long…" in lines[-1].replace(" …", "…")
    assert "second line" not in result.out


@pytest.mark.nightly("tests/cli/test_dlq_tenants.py::test_letters_of_one_tenant_are_replayed_and_purged_among_others")
@pytest.mark.rabbitmq
@pytest.mark.parametrize("kind", ["quorum", pytest.param("classic", marks=pytest.mark.matrix)])
def test_a_killed_replay_of_one_tenant_loses_no_letter(
    home: Path, taskmq: Here, amqp_url: str, kind: QueueKind
) -> None:
    declare(WorkQueue("images", kind=kind), url=amqp_url)
    _bury_in_turn(_NAMES, url=amqp_url)

    with Started(home, "--url", amqp_url, "dlq", "replay", "images", "--tenant", "acme", "--rate", "20/s") as killed:
        eventually(lambda: len(names_in("images", url=amqp_url)) > 4, "some are replayed", within=PATIENCE)
        assert killed.signal_and_wait(signal.SIGKILL) == -signal.SIGKILL
    sent = names_in("images", url=amqp_url)
    eventually(
        lambda: len(names_in("images.dlq", url=amqp_url)) >= len(_NAMES) - len(sent),
        "what was not sent is in its queue again",
        within=PATIENCE,
    )
    left = names_in("images.dlq", url=amqp_url)
    again = taskmq("--url", amqp_url, "dlq", "replay", "images", "--tenant", "acme", "--force")
    purged = taskmq("--url", amqp_url, "dlq", "purge", "images", "--tenant", "acme", "--yes")

    assert set(sent) < set(_ACME)
    assert set(sent) | set(left) == set(_NAMES)
    assert [name for name in left if name in _OTHER] == _OTHER
    assert (again.code, purged.err) == (0, "0 dead letters deleted\n")
    assert set(names_in("images", url=amqp_url)) == set(_ACME)
    assert names_in("images.dlq", url=amqp_url) == _OTHER


@pytest.mark.rabbitmq
@pytest.mark.parametrize("kind", ["quorum", pytest.param("classic", marks=pytest.mark.matrix)])
def test_a_purge_of_one_tenant_removes_only_its_letters_from_a_rabbitmq_queue(
    home: Path, taskmq: Here, amqp_url: str, kind: QueueKind
) -> None:
    del home
    declare(WorkQueue("images", kind=kind), url=amqp_url)
    _bury_in_turn(_NAMES[:20], url=amqp_url)

    purged = taskmq("--url", amqp_url, "dlq", "purge", "images", "--tenant", "other", "--yes")

    assert purged.err == "10 dead letters deleted\n"
    assert names_in("images.dlq", url=amqp_url) == _ACME[:10]
