"""The same commands at an app and through a server: what they print, and how they end."""

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from taskmq import TaskMQ
from taskmq.access import IdentityAdministration, PasswordHasher
from taskmq.api.accounts import AuditEntryView, TenantView, UserView
from taskmq.api.dead_letters import LetterView
from taskmq.api.definitions import DefinitionView
from taskmq.api.jobs import (
    BulkOperationView,
    ChangedJob,
    HistoryView,
    JobCount,
    JobDetails,
    JobView,
    RefusalView,
    SubmittedJob,
)
from taskmq.api.queues import QueueLine, QueueView
from taskmq.api.schedules import ScheduleLine, ScheduleView
from taskmq.api.sign_in import TokenView
from taskmq.api.workers import TaskView
from taskmq.contracts.identity import Actor
from taskmq.model.identity import read_scopes
from taskmq.model.nodes import JobNeeds
from tests.cli.kit import Here, Result, Started, bury, declare, fill, run_process

_APP = """\
from taskmq import TaskMQ, WorkQueue

placed = WorkQueue("train", placed=True)
app = TaskMQ("local://{folder}/broker", store="sqlite:///{folder}/jobs.db", queues=[placed])


@app.task(name="report", queue="reports")
def report(month: str, *, queue: str = "") -> str:
    \"\"\"Report a month.\"\"\"
    return month


@app.task(name="train", queue="train")
def train() -> None: ...


@app.cron("0 2 * * *", name="nightly")
@app.task(name="tick", queue="ticks")
def tick() -> None: ...
"""
_LATER = "2099-01-31T09:00+01:00"
_JANUARY = ("--args", '["2027-01"]')
_NEEDS = ("--resources", '{"cpu": 2}', "--node-label", "region=eu")

# In this order; what they make is there for those that follow.
_MATRIX: list[tuple[str, ...]] = [
    ("job", "submit", "report", *_JANUARY, "--job-id", "jan", "--at", _LATER, "--kwargs", '{"queue": "x"}'),
    ("job", "submit", "report", *_JANUARY, "--job-id", "jan", "--at", _LATER, "--kwargs", '{"queue": "x"}'),
    ("job", "submit", "report", *_JANUARY, "--job-id", "jan", "--priority", "9"),
    ("job", "submit", "raport"),
    ("job", "submit", "report", "--kwargs", '{"year": 1}'),
    ("job", "submit", "report", "--args", "1"),
    ("job", "submit", "report", *_JANUARY, "--job-id", "feb", "--held", "--label", "team:web"),
    ("job", "submit", "report", *_JANUARY, "--job-id", "feb", "--held", "--label", "team=web", "--priority", "3"),
    ("job", "submit", "report", *_JANUARY, "--job-id", "mar", "--depends-on", "ended=jan"),
    ("job", "show", "jan"),
    ("job", "list",),
    ("job", "list", "status:held label.team:web"),
    ("job", "list", "stats:held"),
    ("job", "list", "--count"),
    ("job", "list", "--limit", "1"),
    ("job", "change", "jan", "--priority", "7", "--note", "sooner"),
    ("job", "change", "jan", "--priority", "7", "--version", "1"),
    ("job", "change", "none", "--priority", "7"),
    ("job", "hold", "jan", "none", "--note", "wait"),
    ("job", "release", "jan", "jan"),
    ("job", "hold"),
    ("job", "explain", "jan"),
    ("job", "explain", "none"),
    ("job", "cancel", "jan", "--reason", "enough"),
    ("job", "cancel", "jan"),
    ("job", "submit", "report", *_JANUARY, "--job-id", "mar", "--depends-on", "ended=jan"),
    ("job", "show", "jan"),
    ("job", "history", "jan"),
    ("job", "attempts", "jan"),
    ("job", "logs", "jan"),
    ("job", "logs", "jan", "--follow"),
    ("job", "logs", "jan", "--level", "loud"),
    ("job", "logs", "none"),
    ("job", "clone", "jan", "--new-id", "copy", "--at", _LATER),
    ("job", "retry", "feb"),
    ("definition", "put", "monthly", "report", "--args", '["2027-02"]', "--label", "team=web", "--expires", "1h"),
    ("definition", "put", "monthly", "report", "--args", '["2027-03"]', "--version", "7"),
    ("definition", "put", "monthly", "raport"),
    ("definition", "list"),
    ("definition", "show", "none"),
    ("definition", "versions", "monthly"),
    ("definition", "delete", "monthly"),
    ("definition", "delete", "monthly", "--yes"),
    ("queue", "show", "nowhere", "--within", "10ms"),
    ("queue", "pause", "reports", "--note", "inventory"),
    ("queue", "resume", "reports", "ticks"),
    ("queue", "pause"),
    ("queue", "move", "reports", "ticks"),
    ("queue", "move", "reports", "nowhere", "--yes"),
    ("queue", "move", "reports", "reports", "--yes"),
    ("queue", "move", "reports", "ticks", "--count", "5", "--task", "other.*", "--yes"),
    ("queue", "purge", "reports"),
    ("queue", "purge", "reports", "--yes"),
    ("dlq", "list", "reports"),
    ("dlq", "groups", "reports"),
    ("dlq", "list", "nowhere"),
    ("dlq", "replay", "reports", "--job", "d1"),
    ("dlq", "replay", "reports", "--job", "d9"),
    ("dlq", "purge", "reports"),
    ("dlq", "purge", "reports", "--job", "d2", "--yes"),
    ("dlq", "show", "reports", "d2"),
    ("schedule", "list"),
    ("schedule", "next", "nightly", "--count", "2", "--after", _LATER),
    ("schedule", "backfill", "nightly", "--from", "2026-01-01T00:00Z", "--to", "2026-01-02T12:00Z", "--dry-run"),
    ("schedule", "backfill", "nightly", "--from", "then", "--to", "now"),
    ("workflow", "list", "--state", "running,failed"),
    ("workflow", "list", "--state", "done"),
    ("workflow", "show", "none"),
    ("workflow", "redrive", "none"),
    ("workers", "--within", "10ms"),
    ("bulk", "begin", "hold", "task:none", "--dry-run"),
    ("bulk", "begin", "hold", "task:none", "--rate", "5", "--note", "inventory", "--yes"),
    ("bulk", "begin", "hold", "task:none", "--wait", "--yes"),
    ("bulk", "begin", "hold"),
    ("bulk", "begin", "change", "task:none", "--yes"),
    ("bulk", "show", "none"),
    ("bulk", "abort", "none"),
    ("node", "list"),
    ("node", "show", "nowhere"),
    ("node", "drain", "nowhere"),
    ("node", "remove", "nowhere", "--yes"),
    ("node", "allocations", "--ended"),
    ("pool", "set", "acme", "--weight", "5", "--max", "8"),
    ("pool", "set", "acme.web", "--parent", "acme", "--min", "1"),
    ("pool", "set", "acme", "--weight", "0"),
    ("pool", "set", "acme", "--max", "0"),
    ("pool", "policy", "train", "weighted", "--strict"),
    ("pool", "policy", "train", "fastest"),
    ("pool", "list"),
    ("pool", "show", "acme.web"),
    ("pool", "show", "acne"),
    ("pool", "remove", "acme"),
    ("pool", "remove", "acme.web"),
    ("pool", "remove", "acne"),
    ("quota", "set", "acme", "--queued", "100", "--rate", "2.5", "--burst", "10"),
    ("quota", "set", "acme", "--user", "ann", "--a-day", "9"),
    ("quota", "set", "acme", "--rate", "0"),
    ("quota", "list"),
    ("quota", "remove", "acme", "--user", "ann"),
    ("quota", "remove", "nobody"),
    ("admin", "tenant", "add", "acme", "--description", "a customer"),
    ("admin", "tenant", "add", "acme"),
    ("admin", "tenant", "list"),
    ("admin", "tenant", "disable", "acme"),
    ("admin", "tenant", "enable", "nowhere"),
    ("admin", "user", "add", "ann", "--no-password"),
    ("admin", "role", "add", "ann", "operator", "--tenant", "acme", "--task", "billing.*"),
    ("admin", "role", "add", "ann", "operator"),
    ("admin", "role", "list", "acme"),
    ("admin", "role", "remove", "ann", "--tenant", "acme"),
    ("admin", "user", "show", "nobody"),
    ("admin", "user", "disable", "ann"),
    ("admin", "user", "remove", "ann", "--yes"),
]  # fmt: skip
# What is never the same twice.
_CHANGING = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f-]{21}\b|\b[0-9a-f]{32}\b"), "ID"),
    (re.compile(r"request [0-9a-f]{24} at http://\S+\n"), ""),
    (re.compile(r"in \d+ s\b"), "in N s"),
    (re.compile(r" +"), " "),
)


class Places:
    """An app, and a server of another one that is made the same."""

    def __init__(self, taskmq: Here, server: str) -> None:
        self._taskmq = taskmq
        self.server = server

    def here(self, *tokens: str) -> Result:
        return self._taskmq("--app", "shop:app", *tokens)

    def there(self, *tokens: str) -> Result:
        return self._taskmq("--server", self.server, *tokens)


def _prepare(folder: Path) -> str:
    """Make the app of a folder, with an admin, a waiting message and two dead letters; the admin's token."""
    folder.mkdir(exist_ok=True)
    (folder / "shop.py").write_text(_APP.format(folder=folder))
    url = f"local://{folder}/broker"
    declare("reports", "ticks", url=url)
    fill("reports", ["m1"], url=url, task="report")
    bury("reports.dlq", ["d1", "d2"], url=url, task="report")

    async def make() -> str:
        async with TaskMQ("memory://token", store=f"sqlite:///{folder}/jobs.db") as app:
            hasher = PasswordHasher(time_cost=1, memory_cost=64)
            administration = IdentityAdministration(app.sessions.store().identity, hasher=hasher)
            user = await administration.add_first_admin("root", "correct horse battery", by=Actor())
            scopes = read_scopes(["admin", "account.read"])
            return (await administration.add_token(user.id, "cli", by=Actor(), scopes=scopes)).secret

    return asyncio.run(make())


@pytest.fixture
def places(home: Path, taskmq: Here, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    _prepare(home)
    token = _prepare(home / "there")
    # Who acts: the user of the process, and the token's.
    monkeypatch.setenv("LOGNAME", "root")
    monkeypatch.setenv("TASKMQ_TOKEN", token)
    with Started(home / "there", "server", "shop:app", "--port", "0") as server:
        server.says("at http://")
        (address,) = re.findall(r"at (http://[0-9.:]+)", server.said)
        yield Places(taskmq, address)


def _steady(text: str) -> str:
    for pattern, replacement in _CHANGING:
        text = pattern.sub(replacement, text)
    return text


def test_commands_print_and_end_the_same_at_an_app_and_through_a_server(places: Places) -> None:
    different: list[str] = []
    for tokens in _MATRIX:
        here, there = places.here(*tokens), places.there(*tokens)
        if here.code != there.code or (here.code == 0 and _steady(here.out) != _steady(there.out)):
            different.append(
                f"taskmq {' '.join(tokens)}\n{here.code}: {here.out}{here.err}\n{there.code}: {there.out}{there.err}"
            )

    assert not different, "\n".join(different)


def test_what_a_job_needs_of_its_node_is_kept_here_and_there(places: Places, home: Path) -> None:
    async def needs(folder: Path) -> JobNeeds | None:
        async with TaskMQ("memory://needs", store=f"sqlite:///{folder}/jobs.db") as app:
            detail = (await app.jobs.aget("big")).detail
            return None if detail is None else detail.needs

    for submit, folder in ((places.here, home), (places.there, home / "there")):
        assert submit("job", "submit", "train", "--job-id", "big", *_NEEDS).code == 0
        found = asyncio.run(needs(folder))
        assert found is not None
        assert (found.resources, found.labels) == ({"cpu": 2.0}, {"region": "eu"})


_PRINTED: list[tuple[tuple[str, ...], type[msgspec.Struct]]] = [
    (("job", "submit", "report", *_JANUARY, "--job-id", "jan", "--at", _LATER), SubmittedJob),
    (("job", "show", "jan", "--values"), JobDetails),
    (("job", "list"), JobView),
    (("job", "list", "--count"), JobCount),
    (("job", "hold", "jan"), ChangedJob),
    (("job", "hold", "none"), RefusalView),
    (("job", "change", "jan", "--priority", "1"), ChangedJob),
    (("job", "history", "jan"), HistoryView),
    (("bulk", "begin", "hold", "task:none", "--yes"), BulkOperationView),
    (("bulk", "list"), BulkOperationView),
    (("definition", "put", "monthly", "report"), DefinitionView),
    (("task", "list"), TaskView),
    (("task", "show", "report"), TaskView),
    (("queue", "list"), QueueLine),
    (("queue", "show", "reports", "--within", "10ms"), QueueView),
    (("dlq", "list"), LetterView),
    (("schedule", "list"), ScheduleLine),
    (("schedule", "history", "nightly"), ScheduleView),
    (("admin", "tenant", "add", "acme"), TenantView),
    (("admin", "user", "list"), UserView),
    (("admin", "token", "list"), TokenView),
    (("audit", "list", "--action", "tenant."), AuditEntryView),
]


def test_programs_read_what_the_api_answers(places: Places) -> None:
    for tokens, kind in _PRINTED:
        printed = places.there("-o", "json", *tokens)
        found = printed.data if isinstance(printed.data, list) else [printed.data]

        assert found, tokens
        for one in found:
            assert set(one) == set(kind.__struct_fields__), tokens
            msgspec.convert(one, kind)


def test_a_command_through_a_server_needs_no_app_and_says_what_it_lacks(
    places: Places, taskmq: Here, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    empty = tmp_path_factory.mktemp("empty")
    variables = {"TASKMQ_SERVER": places.server, "TASKMQ_TOKEN": os.environ["TASKMQ_TOKEN"]}

    listed = run_process(empty, "-o", "json", "task", "list", env=variables)

    assert [task["name"] for task in listed.data] == ["report", "tick", "train"]
    # What is said counts before the environment.
    monkeypatch.setenv("TASKMQ_SERVER", "http://127.0.0.1:1")
    assert places.here("job", "list").code == 0
    nobody = taskmq("job", "list")
    assert (nobody.code, "no server answers at http://127.0.0.1:1" in nobody.err) == (5, True)
    local = places.there("topology", "plan")
    assert (local.code, "does not go through a server" in local.err) == (2, True)
    both = taskmq("--server", places.server, "--app", "shop:app", "job", "list")
    assert (both.code, "--server goes in place of" in both.err) == (2, True)
    depth = places.there("dlq", "list", "reports", "--depth", "5")
    assert (depth.code, "--depth does not go through a server" in depth.err) == (2, True)
    monkeypatch.setenv("TASKMQ_TOKEN", "tmq_wrong")
    refused = places.there("job", "list")
    assert (refused.code, f"$TASKMQ_TOKEN has to be a token of {places.server}" in refused.err) == (4, True)
