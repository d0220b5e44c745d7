"""The same commands with an app and through a server: output and exit code."""

import asyncio
import io
import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from taskmq import TaskMQ
from taskmq.access import IdentityAdministration, PasswordHasher
from taskmq.api.accounts import AuditEntryView, TenantView, UserView
from taskmq.api.dead_letters import LetterGroupView, LetterView
from taskmq.api.definitions import DefinitionView
from taskmq.api.health import SystemHealth
from taskmq.api.history.alerts import SilenceView
from taskmq.api.jobs import (
    BulkOperationView,
    ChangedJob,
    HistoryView,
    JobCount,
    JobDetails,
    JobView,
    SubmittedJob,
)
from taskmq.api.pools import PoolView, QuotaView
from taskmq.api.queues import QueueLine, QueueView
from taskmq.api.schedules import ReactionLine, ReactionView, ScheduleExplanation, ScheduleLine, ScheduleView
from taskmq.api.sign_in import TokenView
from taskmq.api.workers import TaskView, WorkerView
from taskmq.api.workflows.runs import RunGraphView
from taskmq.contracts.identity import Actor
from taskmq.model.history.journals import RunProgress
from taskmq.model.identity import Permission, read_scopes
from taskmq.model.jobs.reports import Report
from taskmq.model.nodes import JobNeeds
from taskmq.model.states import JobState
from taskmq.operations import jobs as operations
from taskmq.testing.job_store_suite.driver import JobDriver
from tests.cli.kit import Here, Result, Started, bury, declare, fill, run_here
from tests.cli.serving import serve_shop
from tests.servers import eventually
from tests.unit.app_kit import new_file_store

_APP = """\
from taskmq import TaskMQ, WorkQueue
from taskmq.reactions import all_of, job, message

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


@app.on(all_of(job("report"), message("go")), name="publish", limit="1h")
@app.on(job("report"), name="publish-each")
@app.task(name="publish", queue="ticks")
def publish(events: object) -> None: ...
"""
_ALERTS = """\
channels = ["mailto:ops@example.com"]

[[rule]]
name = "charges-fail"
metric = "failure_rate"
threshold = 0.1
task = "billing.*"

[[rule]]
name = "backlog"
metric = "queue_depth"
threshold = 1000
channels = ["https://hooks.example.com/secret"]
"""
_RUN = "0193a1f2-7c1e-7abc-8def-0123456789ab"
_WEEKLY = '{"workflow": "weekly", "steps": {"a": {"task": "report", "args": ["2027-01"]}, "b": {"wait": "go"}}}'
_LATER = "2099-01-31T09:00+01:00"
_JANUARY = ("--args", '["2027-01"]')
_ENDS = '{"kind": "all_of", "parts": [{"kind": "job", "tasks": ["report"]}, {"kind": "job", "tasks": ["tick"]}]}'
_NEEDS = ("--resources", '{"cpu": 2}', "--node-label", "region=eu")

# In this order: later commands use the objects of earlier ones.
_JOBS: list[tuple[str, ...]] = [
    ("job", "submit", "report", *_JANUARY, "--job-id", "jan", "--at", _LATER, "--kwargs", '{"queue": "x"}'),
    ("job", "submit", "report", *_JANUARY, "--job-id", "jan", "--at", _LATER, "--kwargs", '{"queue": "x"}'),
    ("job", "submit", "report", *_JANUARY, "--job-id", "jan", "--priority", "9"),
    ("job", "submit", "raport"),
    ("job", "submit", "report", "--kwargs", '{"year": 1}'),
    ("job", "submit", "report", "--args", "1"),
    ("job", "submit", "report", *_JANUARY, "--job-id", "feb", "--held", "--label", "team:web"),
    ("job", "submit", "report", *_JANUARY, "--job-id", "feb", "--held", "--label", "team=web", "--priority", "3"),
    ("job", "submit", "report", *_JANUARY, "--job-id", "mar", "--depends-on", "ended=jan"),
    ("job", "submit", "report", *_JANUARY, "--job-id", "apr", "--owner", "root", "--at", _LATER),
    ("job", "show", "apr", "--values"),
    ("job", "show", "jan"),
    ("job", "show", "none", "--within", "10ms"),
    ("job", "show", "mar"),
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
    ("job", "logs", "jan", "--attempt", "2"),
    ("job", "logs", "jan", "--level", "loud"),
    ("job", "logs", "none"),
    ("job", "clone", "jan", "--new-id", "copy", "--at", _LATER),
    ("job", "clone", "jan", "--new-id", "other", "--at", _LATER, "--args", '["2027-05"]', "--priority", "9"),
    ("job", "show", "other"),
    ("job", "clone", "jan", "--kwargs", '{"colour": "red"}'),
    ("job", "retry", "feb"),
    ("definition", "put", "monthly", "report", "--args", '["2027-02"]', "--label", "team=web", "--expires", "1h"),
    ("definition", "put", "monthly", "report", "--args", '["2027-03"]', "--version", "7"),
    ("definition", "put", "monthly", "raport"),
    ("definition", "put", "weekly", "report", *_JANUARY, "--queue", "reports", "--owner", "root"),
    ("definition", "show", "weekly"),
    ("definition", "list"),
    ("definition", "list", "--limit", "1"),
    ("definition", "show", "none"),
    ("definition", "versions", "monthly"),
    ("job", "submit", "weekly", "--at", _LATER),
    ("definition", "delete", "monthly"),
    ("definition", "delete", "monthly", "--yes"),
    ("task", "list"),
    ("task", "list", "t"),
    ("task", "list", "--limit", "1"),
    ("task", "show", "report"),
    ("task", "show", "raport"),
    ("bulk", "begin", "hold", "task:none", "--dry-run"),
    ("bulk", "begin", "hold", "task:none", "--rate", "5", "--note", "inventory", "--yes"),
    ("bulk", "begin", "hold", "task:none", "--wait", "--yes"),
    ("bulk", "begin", "hold"),
    ("bulk", "begin", "change", "task:none", "--yes"),
    ("bulk", "begin", "change", "task:none", "--priority", "3", "--dry-run"),
    ("bulk", "show", "none"),
    ("bulk", "abort", "none"),
]  # fmt: skip
# Some of each noun below.
_READINGS: list[tuple[str, ...]] = [
    ("queue", "list"),
    ("queue", "show", "reports", "--within", "10ms"),
    ("queue", "show", "nowhere", "--within", "10ms"),
    ("queue", "pause", "reports", "--note", "inventory"),
    ("queue", "resume", "reports", "ticks"),
    ("queue", "move", "reports", "ticks", "--count", "5", "--task", "other.*", "--yes"),
    ("dlq", "list", "reports"),
    ("dlq", "groups", "reports", "--error", "ValueError", "--older-than", "1h"),
    ("dlq", "show", "reports", "d1"),
    ("dlq", "replay", "reports", "--dry-run"),
    ("dlq", "replay", "reports", "--job", "d1"),
    ("dlq", "purge", "reports", "--job", "d2", "--yes"),
    ("reaction", "list"),
    ("reaction", "put", "again", "publish", "--when", _ENDS, "--limit", "1h", "--at-limit", "call"),
    ("reaction", "remove", "again", "--yes"),
    ("schedule", "list"),
    ("schedule", "add", "hourly", "report", "--cron", "0 * * * *", "--args", '["2027-01"]', "--overlap", "skip"),
    ("schedule", "change", "hourly", "--cron", "45 2 * * *", "--tz", "Europe/Berlin", "--catchup", "all"),
    ("schedule", "explain", "hourly"),
    ("schedule", "explain", "none"),
    ("schedule", "pause", "nightly", "--note", "inventory"),
    ("schedule", "next", "hourly", "--after", _LATER, "--until", "2099-02-10T09:00Z"),
    ("schedule", "run", "nightly"),
    ("schedule", "history", "nightly"),
    ("schedule", "remove", "hourly", "--yes"),
    ("workflow", "list"),
    ("workflow", "show", "none"),
    ("run", "list", "status:failed started:>-1h"),
    ("run", "show", "none"),
    ("workers", "--within", "10ms"),
    ("worker", "control", "status", "w9", "--within", "10ms"),
]  # fmt: skip
_INSTALLATION: list[tuple[str, ...]] = [
    ("queue", "list"),
    ("queue", "list", "-Q", "reports"),
    ("queue", "list", "-Q", "reports.dlq"),
    ("queue", "list", "-Q", "other,reports.p.low"),
    ("queue", "show", "reports", "--within", "10ms"),
    ("queue", "show", "nowhere", "--within", "10ms"),
    ("queue", "pause", "reports", "--note", "inventory"),
    ("queue", "list"),
    ("queue", "show", "reports", "--within", "10ms"),
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
    ("dlq", "list"),
    ("dlq", "groups"),
    ("dlq", "list", "nowhere"),
    ("dlq", "list", "reports", "--depth", "1"),
    ("dlq", "list", "reports", "--reason", "time*", "--newer-than", "1h"),
    ("dlq", "list", "reports", "--older-than", "soon"),
    ("dlq", "groups", "reports", "--error", "ValueError", "--older-than", "1h"),
    ("dlq", "show", "reports", "d1"),
    ("dlq", "show", "reports", "d9"),
    ("dlq", "replay", "reports", "--dry-run"),
    ("dlq", "replay", "reports", "--dry-run", "--max-replays", "1", "--duplicates", "--limit", "1"),
    ("dlq", "purge", "reports", "--dry-run", "--error", "ValueError"),
    ("dlq", "replay", "reports", "--job", "d1"),
    ("dlq", "replay", "reports", "--job", "d9"),
    ("dlq", "purge", "reports"),
    ("dlq", "purge", "reports", "--job", "d2", "--yes"),
    ("dlq", "show", "reports", "d2"),
    ("reaction", "list"),
    ("reaction", "list", "--limit", "1"),
    ("reaction", "show", "publish"),
    ("reaction", "show", "none"),
    ("reaction", "put", "again", "publish", "--when", '{"kind": "all_of", "parts": [{"kind": "file"}]}'),
    ("reaction", "put", "again", "publish", "--when", "7"),
    ("reaction", "put", "again", "publish", "--when", _ENDS, "--limit", "1h", "--at-limit", "call"),
    ("reaction", "show", "again"),
    ("reaction", "remove", "publish", "--yes"),
    ("reaction", "remove", "again", "--yes"),
    ("reaction", "remove", "again", "--yes"),
    ("schedule", "explain", "publish"),
    ("schedule", "list"),
    ("schedule", "next", "nightly", "--count", "2", "--after", _LATER),
    ("schedule", "backfill", "nightly", "--from", "2026-01-01T00:00Z", "--to", "2026-01-02T12:00Z", "--dry-run"),
    ("schedule", "backfill", "nightly", "--from", "then", "--to", "now"),
    ("schedule", "add", "once", "report", "--at", "2099-01-31T09:00", *_JANUARY),
    ("schedule", "add", "hourly", "report", "--cron", "0 * * * *", "--args", '["2027-01"]', "--overlap", "skip"),
    ("schedule", "add", "hourly", "report", "--every", "2h", "--args", '["2027-01"]'),
    ("schedule", "add", "once", "report", "--at", _LATER, "--args", "7"),
    ("schedule", "add", "none", "raport", "--every", "1h"),
    ("schedule", "add", "none", "report"),
    ("schedule", "add", "nightly", "report", "--every", "1h", "--args", '["2027-01"]'),
    ("schedule", "list"),
    ("schedule", "change", "hourly", "--cron", "45 2 * * *", "--tz", "Europe/Berlin", "--catchup", "all"),
    ("schedule", "change", "hourly", "--cron", "50 2 * * *", "--jitter", "5m"),
    ("schedule", "show", "hourly"),
    ("schedule", "show", "nightly"),
    ("schedule", "show", "none"),
    ("schedule", "change", "hourly", "--overlap", "allow", "--args", '["2027-02"]'),
    ("schedule", "change", "hourly", "--args", "[1, 2, 3, 4]"),
    ("schedule", "change", "hourly", "--task", "raport"),
    ("schedule", "change", "hourly", "--cron", "0 3 * * *", "--every", "1h"),
    ("schedule", "change", "nightly", "--every", "1h"),
    ("schedule", "change", "none", "--every", "1h"),
    ("schedule", "show", "hourly"),
    ("schedule", "explain", "hourly"),
    ("schedule", "explain", "nightly"),
    ("schedule", "explain", "none"),
    ("schedule", "explain", "H 3 * * *", "--tz", "Europe/Berlin", "--count", "2"),
    ("schedule", "explain", "61 3 * * *"),
    ("schedule", "pause", "nightly", "--note", "inventory"),
    ("schedule", "pause", "none"),
    ("schedule", "list", "--limit", "1"),
    ("schedule", "list", "n"),
    ("schedule", "next", "nightly"),
    ("schedule", "next"),
    ("schedule", "next", "hourly", "--after", _LATER, "--until", "2099-02-10T09:00Z"),
    ("schedule", "next", "hourly", "--after", _LATER, "--until", "2099-02-10T09:00Z", "-n", "7"),
    ("schedule", "next", "--until", "2099-02-10T09:00"),
    ("schedule", "next", "-n", "250"),
    ("schedule", "resume", "nightly"),
    ("schedule", "resume", "none"),
    ("schedule", "run", "nightly"),
    ("schedule", "run", "none"),
    ("schedule", "history", "nightly"),
    ("schedule", "remove", "hourly", "--yes"),
    ("schedule", "remove", "hourly", "--yes"),
    ("schedule", "remove", "nightly", "--yes"),
    ("workflow", "apply", "nowhere.json"),
    ("workflow", "list"),
    ("workflow", "show", "none"),
    ("workflow", "versions", "none"),
    ("workflow", "diff", "none", "v1"),
    ("workflow", "activate", "none", "v1"),
    ("workflow", "start", "none", "-p", "day=1"),
    ("run", "list", "status:failed started:>-1h"),
    ("run", "list", "stauts:failed"),
    ("run", "show", "none"),
    ("run", "steps", "none"),
    ("run", "graph", "none"),
    ("run", "signal", "none", "go", "{}"),
    ("run", "cancel", "none"),
    ("run", "redrive", "none"),
    ("workers", "--within", "10ms"),
    ("worker", "control", "status", "w9", "--within", "10ms"),
    ("worker", "control", "status", "--within", "10ms"),
    ("worker", "control", "drain", "w9", "--within", "10ms"),
    ("worker", "control", "drain"),
    ("worker", "control", "concurrency", "0", "--all"),
    ("worker", "control", "concurrency", "3", "--host", "nowhere", "--within", "10ms"),
    ("worker", "control", "stacks", "--all", "--within", "10ms"),
]  # fmt: skip
_ADMINISTRATION: list[tuple[str, ...]] = [
    ("alert", "apply", "alerts.toml"),
    ("alert", "apply", "alerts.toml"),
    ("alert", "apply", "nowhere.toml"),
    ("alert", "rules"),
    ("alert", "list"),
    ("alert", "list", "--resolved"),
    ("alert", "test", "charges-fail"),
    ("alert", "test", "none"),
    ("alert", "notices"),
    ("alert", "silence", "2h", "--rule", "charges-*", "--why", "moving"),
    ("alert", "silence", "never"),
    ("alert", "silences"),
    ("alert", "unsilence", "none"),
    ("alert", "remove", "none", "--yes"),
    ("alert", "remove", "charges-fail", "--yes"),
    ("stats", "--since", "2h", "--task", "report"),
    ("stats", "--since", "2h", "--by", "tenant"),
    ("stats", "--since", "soon"),
    ("failures", "--since", "2h", "--task", "report"),
    ("failures", "--since", "soon"),
    ("failures", "none"),
    ("node", "list"),
    ("node", "show", "nowhere"),
    ("node", "drain", "nowhere"),
    ("node", "resume", "nowhere"),
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
    ("pool", "remove", "acme", "--yes"),
    ("pool", "remove", "acme.web", "--yes"),
    ("pool", "remove", "acne", "--yes"),
    ("quota", "set", "acme", "--queued", "100", "--rate", "2.5", "--burst", "10"),
    ("quota", "set", "acme", "--user", "ann", "--a-day", "9"),
    ("quota", "set", "acme", "--rate", "0"),
    ("quota", "list"),
    ("quota", "remove", "acme", "--user", "ann", "--yes"),
    ("quota", "remove", "nobody", "--yes"),
    ("admin", "tenant", "add", "acme", "--description", "a customer"),
    ("admin", "tenant", "add", "acme"),
    ("admin", "tenant", "list"),
    ("admin", "tenant", "disable", "acme"),
    ("admin", "tenant", "enable", "nowhere"),
    ("admin", "user", "add", "ann", "--no-password"),
    ("admin", "role", "add", "ann", "operator", "--tenant", "acme", "--task", "billing.*"),
    ("admin", "role", "add", "ann", "operator"),
    ("admin", "role", "list", "acme"),
    ("admin", "role", "remove", "ann", "--tenant", "acme", "--yes"),
    ("admin", "user", "show", "nobody"),
    ("admin", "token", "list", "ann"),
    ("admin", "token", "remove", "none", "--yes"),
    ("admin", "token", "list", "nobody"),
    ("admin", "user", "disable", "ann"),
    ("admin", "user", "remove", "ann", "--yes"),
    ("audit", "verify"),
]  # fmt: skip
_TO_WORKERS: list[tuple[str, ...]] = [
    ("workers",),
    ("worker", "control", "status", "w1"),
    ("worker", "control", "status", "w1", "w9"),
    ("worker", "control", "concurrency", "3", "w1"),
    ("worker", "control", "concurrency", "3", "--all"),
    ("worker", "control", "log-level", "debug", "w1"),
    ("worker", "control", "drain", "w9", "--within", "50ms"),
]
# Values that never repeat.
_CHANGING = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f-]{21}\b|\b[0-9a-f]{32}\b"), "ID"),
    (re.compile(r"request [0-9a-f]{24} at http://\S+\n"), ""),
    (re.compile(r"\btmq_[A-Za-z0-9_-]{43}\b"), "SECRET"),
    (re.compile(r"in \d+ s\b"), "in N s"),
    # The audit of a server has more entries: one for each request through it.
    (re.compile(r"unsealed +\d+"), "unsealed N"),
    (re.compile(r" +"), " "),
)


class Places:
    """An app, and a server of an identical one."""

    def __init__(self, taskmq: Here, server: str) -> None:
        self._taskmq = taskmq
        self.server = server

    def here(self, *tokens: str) -> Result:
        return self._taskmq("--app", "shop:app", *tokens)

    def run_there(self, *tokens: str, text: str = "") -> Result:
        """Run the command with this standard input."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", io.StringIO(text))
            return self._taskmq("--server", self.server, *tokens)


def _prepare(folder: Path) -> str:
    """Create the app of a folder, with an admin, a waiting message and two dead letters; return the admin's token."""
    folder.mkdir(exist_ok=True)
    (folder / "shop.py").write_text(_APP.format(folder=folder))
    (folder / "alerts.toml").write_text(_ALERTS)
    new_file_store(folder)
    url = f"local://{folder}/broker"
    declare("reports", "ticks", url=url)
    fill("reports", ["m1"], url=url, task="report")
    bury("reports.dlq", ["d1", "d2"], url=url, task="report")

    async def make() -> str:
        async with TaskMQ("memory://token", store=f"sqlite:///{folder}/jobs.db") as app:
            hasher = PasswordHasher(time_cost=1, memory_cost=64)
            administration = IdentityAdministration(app.sessions.store().identity, hasher=hasher)
            user = await administration.add_first_admin("root", "correct horse battery", by=Actor())
            scopes = read_scopes(["admin", "account.read", "account.change"])
            return (await administration.add_token(user.id, "cli", by=Actor(), scopes=scopes)).secret

    return asyncio.run(make())


@pytest.fixture
def places(home: Path, taskmq: Here, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    _prepare(home)
    token = _prepare(home / "there")
    # The actors: the user of the process, and the user of the token.
    monkeypatch.setenv("LOGNAME", "root")
    monkeypatch.setenv("TASKMQ_TOKEN", token)
    with serve_shop(home / "there") as address:
        yield Places(taskmq, address)


def _steady(text: str) -> str:
    for pattern, replacement in _CHANGING:
        text = pattern.sub(replacement, text)
    return text


@pytest.mark.parametrize(
    "commands",
    [
        pytest.param(_JOBS, id="jobs"),
        pytest.param(_READINGS, id="readings"),
        pytest.param(
            _INSTALLATION,
            id="installation",
            marks=pytest.mark.nightly(
                "tests/cli/test_through_a_server.py::test_commands_print_and_end_the_same_with_an_app_and_through_a_server"
            ),
        ),
        pytest.param(
            _ADMINISTRATION,
            id="administration",
            marks=pytest.mark.nightly(
                "tests/cli/test_through_a_server.py::test_commands_print_and_end_the_same_with_an_app_and_through_a_server"
            ),
        ),
    ],
)
def test_commands_print_and_end_the_same_with_an_app_and_through_a_server(
    places: Places, commands: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # No worker runs, so none has to be waited for.
    monkeypatch.setattr(operations, "report_job", partial(operations.report_job, within=0.01))
    different: list[str] = []
    for tokens in commands:
        here, there = places.here(*tokens), places.run_there(*tokens)
        if here.code != there.code or (here.code == 0 and _steady(here.out) != _steady(there.out)):
            different.append(
                f"taskmq {' '.join(tokens)}\n{here.code}: {here.out}{here.err}\n{there.code}: {there.out}{there.err}"
            )

    assert not different, "\n".join(different)


async def _run_half(folder: Path) -> str:
    """Start a job and report half of its progress; return its id."""
    async with TaskMQ(f"local://{folder}/broker", store=f"sqlite:///{folder}/jobs.db") as app:
        store = app.sessions.store()
        job = await JobDriver(store).make(JobState.RUNNING, task="report")
        progress = RunProgress(done=5, total=10, note="rows", updated=2_000)
        report = Report(id=job.id, token=job.token, kind="progress", started=1_000, progress=progress)
        await store.journals.report([report])
        return job.id


def test_progress_of_a_job_is_shown_with_an_app_and_through_a_server(places: Places, home: Path) -> None:
    mine, theirs = asyncio.run(_run_half(home)), asyncio.run(_run_half(home / "there"))

    listed = [places.here("job", "list", "-o", "json").data, places.run_there("job", "list").out]
    shown = [places.here("job", "show", mine).out, places.run_there("job", "show", theirs).out]

    assert (listed[0][0]["progress"]["done"], listed[0][0]["progress"]["total"]) == (5, 10)
    assert "5 of 10" in listed[1]
    assert all("5 of 10: rows (attempt 1, 1970-01-01T00:00:02Z)" in each for each in shown), shown


def test_the_health_of_each_component_is_shown_through_a_server_without_a_sign_in(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TASKMQ_TOKEN")
    shown, table = places.run_there("doctor", "-o", "json"), places.run_there("doctor")
    refused = places.run_there("doctor", "--watch", "5s")

    assert (shown.code, table.code, refused.code) == (1, 1, 2)
    assert {row["part"]: row["status"] for row in shown.data} == {
        "store": "works",
        "broker": "works",
        "state": "works",
        "schedulers": "down",
        "workers": "down",
    }
    assert table.out.splitlines()[0].split() == ["part", "status", "since", "finding", "without"]
    assert "no scheduler runs: start" in table.out
    assert "--watch does not work through a server" in refused.err


def test_the_status_of_the_system_is_shown_the_same_both_ways(places: Places) -> None:
    here, there = places.here("status", "-o", "json"), places.run_there("status", "-o", "json")
    table = places.run_there("status")

    assert (here.code, there.code, table.code) == (1, 1, 1)
    for shown in (here, there):
        assert set(shown.data) == set(SystemHealth.__struct_fields__)
        assert {row["part"]: row["status"] for row in shown.data["parts"]}["schedulers"] == "down"
        assert {row["holder"] for row in shown.data["partitions"]} == {None}
        assert shown.data["parts"][0]["size"] > 0
        assert "start `taskmq scheduler`" in {row["remedy"] for row in shown.data["findings"]}
    assert table.out.splitlines()[0].split()[:4] == ["part", "status", "since", "check"]
    assert "no scheduler" in table.out
    assert "findings:" in table.err


def test_a_token_creates_no_tokens_through_a_server(places: Places) -> None:
    refused = places.run_there("admin", "token", "add", "root", "ci", "--scope", "jobs.read")

    assert refused.code == 4
    assert "a token cannot create tokens: sign in" in refused.err


@pytest.mark.nightly("tests/unit/server/test_sign_in.py")
def test_a_session_through_a_server_creates_a_token_with_the_password(
    places: Places, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = "seven green bicycles"
    assert places.run_there("admin", "user", "add", "ann", text=f"{password}\n").code == 0
    begun = httpx.post(
        f"{places.server}/api/v1/auth/login", json={"username": "ann", "password": password}, verify=False
    )
    admin = os.environ["TASKMQ_TOKEN"]
    monkeypatch.setenv("TASKMQ_TOKEN", begun.json()["token"])
    add = ("-o", "json", "admin", "token", "add", "ann")

    fresh = places.run_there(*add, "fresh")
    with closing(sqlite3.connect(home / "there" / "jobs.db")) as connection, connection:
        connection.execute("update session set created = created - 300000")
    unasked, wrong, confirmed = (
        places.run_there(*add, name, text=text)
        for name, text in (("unasked", ""), ("wrong", "wrong password\n"), ("good", f"{password}\n"))
    )
    monkeypatch.setenv("TASKMQ_TOKEN", admin)
    changed = places.run_there("admin", "user", "password", "ann", "--keep-tokens", text="eight yellow kayaks\n")
    again = places.run_there("admin", "user", "password", "ann", text="nine purple gloves\n")

    assert (fresh.code, unasked.code, wrong.code, confirmed.code) == (0, 2, 2, 0)
    assert "no password for ann" in unasked.err
    assert "the current password is wrong" in wrong.err
    assert confirmed.data["token"].startswith("tmq_")
    assert "0 API tokens revoked, 2 still valid" in changed.err
    assert "2 API tokens revoked, 0 still valid" in again.err


@pytest.mark.nightly("tests/unit/server/test_sign_in.py")
def test_setting_a_password_through_a_server_ends_sessions_and_is_audited(places: Places) -> None:
    first, second = "seven green bicycles", "eight yellow kayaks"
    run = places.run_there

    def log_in(password: str) -> httpx.Response:
        body = {"username": "ann", "password": password}
        return httpx.post(f"{places.server}/api/v1/auth/login", json=body, verify=False)

    def me(session: str) -> int:
        headers = {"Authorization": f"Bearer {session}"}
        return httpx.get(f"{places.server}/api/v1/auth/me", headers=headers, verify=False).status_code

    assert run("admin", "user", "add", "ann", text=f"{first}\n").code == 0
    session = log_in(first).json()["token"]
    assert me(session) == 200
    short = run("admin", "user", "password", "ann", text="short\n")
    unknown = run("admin", "user", "password", "nobody", text=f"{second}\n")
    changed = run("admin", "user", "password", "ann", text=f"{second}\n")
    entries = run("-o", "json", "audit", "list", "--action", "user.").data

    assert (short.code, unknown.code, changed.code) == (2, 3, 0)
    assert "1 sessions ended, 0 API tokens revoked, 0 still valid" in changed.err
    assert me(session) == 401
    assert (log_in(first).status_code, log_in(second).status_code) == (401, 200)
    last = entries[0]
    assert (last["action"], last["user"], last["via"], last["address"]) == (
        "user.password",
        "root",
        "token",
        "127.0.0.1",
    )
    assert not any(secret in str(entries) for secret in (first, second, "argon2"))


def test_a_password_is_set_through_a_server_with_permission_to_change_users(
    places: Places, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def token_without(folder: Path) -> str:
        async with TaskMQ("memory://token", store=f"sqlite:///{folder}/jobs.db") as app:
            store = app.sessions.store().identity
            administration = IdentityAdministration(store, hasher=PasswordHasher(time_cost=1, memory_cost=64))
            found = await store.accounts.account_named("root")
            assert found is not None
            scopes = frozenset(Permission) - {Permission.USERS_CHANGE}
            made = await administration.add_token(found[0].user.id, "reader", by=Actor(), scopes=scopes)
            return made.secret

    monkeypatch.setenv("TASKMQ_TOKEN", asyncio.run(token_without(home / "there")))

    refused = places.run_there("admin", "user", "password", "root", text="eight yellow kayaks\n")
    first = places.run_there("admin", "init", text="eight yellow kayaks\n")

    assert (refused.code, "users.change" in refused.err) == (4, True)
    # No user exists yet, so a server could accept no caller.
    assert (first.code, "does not work through a server" in first.err) == (2, True)


@pytest.mark.nightly("tests/unit/server/test_queues.py")
def test_workers_are_shown_and_controlled_the_same_both_ways(places: Places, home: Path) -> None:
    with _worker(home) as here, _worker(home / "there") as there:
        for worker in (here, there):
            worker.says("waiting for jobs")
        for tokens in _TO_WORKERS:
            own, through = places.here(*tokens), places.run_there(*tokens)
            # Two processes are never exactly equal.
            assert (own.code, _words(own.out), own.err) == (through.code, _words(through.out), through.err), tokens
        stacks = places.run_there("worker", "control", "stacks", "--all")
        listed = places.run_there("-o", "json", "workers")
        told = places.run_there("-o", "json", "worker", "control", "concurrency", "4", "w1")
        looks = [place("-o", "json", "top", "--every", "0.2s").data for place in (places.here, places.run_there)]
        for place in (places.here, places.run_there):
            assert place("worker", "control", "drain", "w1").code == 0

    assert "== w1 (done)\n" in stacks.out
    assert [(one["name"], one["slots"]) for one in msgspec.convert(listed.data, list[dict[str, object]])] == [
        ("w1", 3)
    ]
    assert set(listed.data[0]) == set(WorkerView.__struct_fields__)
    assert [(one["verdict"], one["status"]["slots"]) for one in told.data] == [("done", 4)]
    for part in ("queues", "workers"):
        here_names, there_names = ([set(one) for one in look[part]] for look in looks)
        assert there_names[: len(here_names)] == here_names


@pytest.mark.nightly(
    "tests/cli/test_through_a_server.py::test_commands_print_and_end_the_same_with_an_app_and_through_a_server"
)
def test_task_activity_is_seen_through_a_server(places: Places, home: Path) -> None:
    folder = home / "there"
    variables = {"TASKMQ_SERVER": places.server, "TASKMQ_TOKEN": os.environ["TASKMQ_TOKEN"]}
    with _worker(folder) as worker:
        worker.says("waiting for jobs")
        with Started(folder, "-o", "jsonl", "top", "--every", "0.2s", env=variables) as top:
            eventually(lambda: any(each["workers"] for each in _samples(top.said)), "the worker is seen")
            # Only present listeners get an event.
            eventually(lambda: _sent_is_seen(folder, top), "the task is seen")
            seen = _samples(top.said)[-1]

    assert (seen["broker"], [each["name"] for each in seen["workers"]]) == (places.server, ["w1"])
    assert [each["task"] for each in seen["tasks"]] == ["report"]


def _sent_is_seen(folder: Path, top: Started) -> bool:
    assert run_here(folder, "--app", "shop:app", "send", "report", *_JANUARY).code == 0
    return any(each["tasks"] for each in _samples(top.said))


@pytest.mark.nightly(
    "tests/cli/test_through_a_server.py::test_commands_print_and_end_the_same_with_an_app_and_through_a_server"
)
def test_the_graph_of_a_run_is_drawn_through_a_server(places: Places, home: Path) -> None:
    for folder in (home, home / "there"):
        (folder / "weekly.json").write_text(_WEEKLY)
    for words in (("workflow", "apply", "weekly.json"), ("workflow", "start", "weekly", "--id", _RUN)):
        here, there = places.here(*words), places.run_there(*words)
        assert (here.code, there.code) == (0, 0), (here.err, there.err)
    for words in (("run", "graph", _RUN), ("run", "steps", _RUN)):
        here, there = places.here(*words), places.run_there(*words)
        assert (here.code, _steady(here.out), _steady(here.err)) == (
            there.code,
            _steady(there.out),
            _steady(there.err),
        )
    drawn = places.run_there("run", "graph", _RUN, "--format", "dot")
    whole = places.run_there("-o", "json", "run", "graph", _RUN)

    assert drawn.out.startswith("digraph workflow {")
    assert set(whole.data) == set(RunGraphView.__struct_fields__)


def _worker(folder: Path) -> Started:
    return Started(folder, "worker", "shop:app", "--name", "w1", "-c", "3", "-Q", "reports", "--grace", "0s")


def _words(text: str) -> str:
    """Remove the differences between processes from an output."""
    return re.sub(r"-?[0-9.]+", "N", _steady(text))


def _samples(said: str) -> list[dict[str, Any]]:
    lines = [line for line in said.splitlines(keepends=True) if line.startswith("{") and line.endswith("\n")]
    return [msgspec.json.decode(line) for line in lines]


@pytest.mark.nightly(
    "tests/cli/test_through_a_server.py::test_commands_print_and_end_the_same_with_an_app_and_through_a_server"
)
def test_node_requirements_of_a_job_are_stored_both_ways(places: Places, home: Path) -> None:
    async def needs(folder: Path) -> JobNeeds | None:
        async with TaskMQ("memory://needs", store=f"sqlite:///{folder}/jobs.db") as app:
            detail = (await app.jobs.aget("big")).detail
            return None if detail is None else detail.needs

    for submit, folder in ((places.here, home), (places.run_there, home / "there")):
        assert submit("job", "submit", "train", "--job-id", "big", *_NEEDS).code == 0
        found = asyncio.run(needs(folder))
        assert found is not None
        assert (found.resources, found.labels) == ({"cpu": 2.0}, {"region": "eu"})


class _Acted(msgspec.Struct):
    """The outcome of one of several jobs."""

    job: str
    state: str
    refused: str


_PRINTED: list[tuple[tuple[str, ...], type[msgspec.Struct]]] = [
    (("job", "submit", "report", *_JANUARY, "--job-id", "jan", "--at", _LATER), SubmittedJob),
    (("job", "show", "jan", "--values"), JobDetails),
    (("job", "list"), JobView),
    (("job", "list", "--count"), JobCount),
    (("job", "change", "jan", "--priority", "1"), JobDetails),
    (("job", "clone", "jan", "--new-id", "feb"), ChangedJob),
    (("job", "hold", "jan"), _Acted),
    (("job", "hold", "none"), _Acted),
    (("job", "history", "jan"), HistoryView),
    (("bulk", "begin", "hold", "task:none", "--yes"), BulkOperationView),
    (("bulk", "list"), BulkOperationView),
    (("pool", "set", "acme", "--weight", "2"), PoolView),
    (("pool", "list"), PoolView),
    (("quota", "set", "acme", "--a-day", "9"), QuotaView),
    (("quota", "list"), QuotaView),
    (("alert", "silence", "1h"), SilenceView),
    (("alert", "silences"), SilenceView),
    (("definition", "put", "monthly", "report"), DefinitionView),
    (("task", "list"), TaskView),
    (("task", "show", "report"), TaskView),
    (("dlq", "show", "reports", "d1"), LetterView),
    (("dlq", "groups"), LetterGroupView),
    (("schedule", "show", "nightly"), ScheduleView),
    (("schedule", "explain", "nightly"), ScheduleExplanation),
    (("queue", "list"), QueueLine),
    (("queue", "show", "reports", "--within", "10ms"), QueueView),
    (("dlq", "list"), LetterView),
    (("schedule", "list", "nightly"), ScheduleLine),
    (("reaction", "list"), ReactionLine),
    (("reaction", "show", "publish"), ReactionView),
    (("schedule", "history", "nightly"), ScheduleView),
    (("admin", "tenant", "add", "acme"), TenantView),
    (("admin", "user", "list"), UserView),
    (("admin", "token", "list"), TokenView),
    (("audit", "list", "--action", "tenant."), AuditEntryView),
]


def test_programs_read_the_answer_of_the_api(places: Places) -> None:
    for place, (tokens, kind) in product((places.here, places.run_there), _PRINTED):
        printed = place("-o", "json", *tokens)
        found = printed.data if isinstance(printed.data, list) else [printed.data]

        assert found, (tokens, printed.err)
        fields = msgspec.structs.fields(kind)
        # Fields requested by `expand` are omitted if they are empty.
        needed = {each.name for each in fields if each.required or not kind.__struct_config__.omit_defaults}
        for one in found:
            assert needed <= set(one) <= {each.name for each in fields}, tokens
            msgspec.convert(one, kind)


def test_a_command_through_a_server_needs_no_app_and_says_what_it_lacks(
    places: Places, taskmq: Here, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    empty = tmp_path_factory.mktemp("empty")
    variables = {"TASKMQ_SERVER": places.server, "TASKMQ_TOKEN": os.environ["TASKMQ_TOKEN"]}

    listed = run_here(empty, "-o", "json", "task", "list", env=variables)

    assert [task["name"] for task in listed.data] == ["publish", "report", "tick", "train"]
    # Arguments override the environment.
    monkeypatch.setenv("TASKMQ_SERVER", "http://127.0.0.1:1")
    assert places.here("job", "list").code == 0
    nobody = taskmq("job", "list")
    assert (nobody.code, "no server answers at http://127.0.0.1:1" in nobody.err) == (5, True)
    local = places.run_there("topology", "plan")
    assert (local.code, "does not work through a server" in local.err) == (2, True)
    both = taskmq("--server", places.server, "--app", "shop:app", "job", "list")
    assert (both.code, "--server cannot be combined with" in both.err) == (2, True)
    monkeypatch.setenv("TASKMQ_TOKEN", "tmq_wrong")
    refused = places.run_there("job", "list")
    assert (refused.code, f"$TASKMQ_TOKEN must be a valid token of {places.server}" in refused.err) == (4, True)


@pytest.mark.nightly(
    "tests/cli/test_through_a_server.py::test_commands_print_and_end_the_same_with_an_app_and_through_a_server"
)
def test_names_with_slashes_are_reached_through_a_server(places: Places) -> None:
    job, schedule = "2027/01?x=#1", "reports/yearly"
    commands = [
        ("job", "submit", "report", *_JANUARY, "--job-id", job, "--held"),
        ("job", "show", job),
        ("job", "cancel", job),
        ("schedule", "add", schedule, "report", "--every", "1h", "--args", '["2027-01"]'),
        ("schedule", "next", schedule),
        ("schedule", "explain", schedule),
        ("schedule", "pause", schedule),
        ("schedule", "resume", schedule),
        ("schedule", "remove", schedule, "--yes"),
    ]

    answers = [(tokens, places.run_there(*tokens)) for tokens in commands]

    assert [(tokens, answer.err) for tokens, answer in answers if answer.code != 0] == []
