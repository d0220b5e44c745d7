"""Each change by the command line is in the audit of a store, with its user."""

import asyncio
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App

from taskmq import TaskMQ, batch
from taskmq.cli.root import _COMMANDS  # pyright: ignore[reportPrivateUsage]
from taskmq.contracts.broker import BrokerOptions
from taskmq.model.nodes import NodeTold
from taskmq_sql import open_job_store
from tests.cli.kit import Here, Result, bury, declare

_APP = """\
from taskmq import TaskMQ

app = TaskMQ(store="sqlite:///jobs.db")


@app.task(name="double", queue="images")
def double(number: int) -> int:
    return number * 2


@app.task(name="react", queue="images")
def react(ended: object) -> None: ...
"""
_YES = "--yes"
_RUN = "0193a1f2-7c1e-7abc-8def-0123456789ab"
_FILE = '{"workflow": "weekly", "steps": {"a": {"task": "double", "args": [1]}, "b": {"wait": "go"}}}'

_CHANGES = {
    ("queue pause", "images", "--note", "printer"): ("queue.pause", "images"),
    ("queue resume", "images"): ("queue.resume", "images"),
    ("queue purge", "images", _YES): ("queue.purge", "images"),
    ("queue move", "images", "other", _YES): ("queue.move", "images"),
    ("dlq replay", "images"): ("dead_letters.replay", "images"),
    ("dlq purge", "images", _YES): ("dead_letters.purge", "images"),
    ("schedule add", "@acme:tick", "double", "--every", "1h", "--args", "[1]"): ("schedule.put", "@acme:tick"),
    ("schedule change", "@acme:tick", "--every", "2h"): ("schedule.change", "@acme:tick"),
    ("schedule pause", "@acme:tick"): ("schedule.pause", "@acme:tick"),
    ("schedule resume", "@acme:tick"): ("schedule.resume", "@acme:tick"),
    ("schedule run", "@acme:tick"): ("schedule.run", "@acme:tick"),
    ("schedule backfill", "@acme:tick", "--from", "2026-01-01T00:00+00:00", "--to", "2026-01-01T01:00+00:00"): (
        "schedule.backfill",
        "@acme:tick",
    ),
    ("schedule remove", "@acme:tick", _YES): ("schedule.remove", "@acme:tick"),
    ("reaction put", "again", "react", "--when", '{"kind": "job", "tasks": ["double"]}'): ("reaction.put", "again"),
    ("reaction remove", "again", _YES): ("reaction.remove", "again"),
    ("pool set", "acme", "--weight", "2"): ("pool.change", "acme"),
    ("pool remove", "acme", _YES): ("pool.remove", "acme"),
    ("pool policy", "images", "fifo"): ("queue.policy", "images"),
    ("quota set", "acme", "--user", "ann", "--a-day", "5"): ("quota.change", "acme/ann"),
    ("quota remove", "acme", "--user", "ann", _YES): ("quota.remove", "acme/ann"),
    ("node drain", "gpu-1"): ("node.drain", "gpu-1"),
    ("node resume", "gpu-1"): ("node.resume", "gpu-1"),
    ("node remove", "gpu-1", _YES): ("node.remove", "gpu-1"),
    ("definition put", "one", "double", "--args", "[1]"): ("definition.put", "one"),
    ("definition delete", "one", _YES): ("definition.delete", "one"),
    ("workflow apply", "weekly.json"): ("workflow.put", "weekly"),
    ("workflow activate", "weekly", "VERSION"): ("workflow.activate", "weekly"),
    ("workflow start", "weekly", "--id", _RUN): ("workflow.start", "weekly"),
    ("run signal", _RUN, "go"): ("run.signal", _RUN),
    ("run close", "BATCH"): ("run.close", "BATCH"),
    ("run redrive", _RUN): ("run.redrive", _RUN),
    ("run clone", _RUN): ("run.clone", _RUN),
    ("run hold", _RUN): ("run.hold", _RUN),
    ("run release", _RUN): ("run.release", _RUN),
    ("run cancel", _RUN): ("run.cancel", _RUN),
    ("worker control pause", "w1", "--within", "10ms"): ("worker.pause", "w1"),
    ("worker control resume", "w1", "--within", "10ms"): ("worker.resume", "w1"),
    ("worker control drain", "w1", "--within", "10ms"): ("worker.drain", "w1"),
    ("worker control concurrency", "2", "w1", "--within", "10ms"): ("worker.concurrency", "w1"),
    ("worker control log-level", "debug", "w1", "--within", "10ms"): ("worker.log_level", "w1"),
    ("job change", "JOB", "--priority", "8"): ("job.change", "JOB"),
    ("job hold", "JOB"): ("job.hold", "JOB"),
    ("job release", "JOB"): ("job.release", "JOB"),
    ("job signal", "JOB", "go"): ("job.signal", "JOB"),
    ("job clone", "JOB"): ("job.clone", "JOB"),
    ("job cancel", "JOB"): ("job.cancel", "JOB"),
    ("job retry", "JOB"): ("job.retry", "JOB"),
    ("job reschedule", "sent-1", "--delay", "5m"): ("job.reschedule", "sent-1"),
    ("store prune", "--older-than", "7d"): ("store.prune", ""),
    ("store archive", "archive", "--prune"): ("store.prune", ""),
    ("store rotate-key",): ("store.rotate_key", None),
    ("topology apply",): ("topology.apply", "images"),
    ("topology isolate", "acme"): ("topology.isolate", "images"),
    ("topology migrate", "images", _YES): ("topology.migrate", "images"),
    ("topology isolate", "north"): ("topology.isolate", "images"),
    ("bulk begin", "hold", "task:none", _YES): ("bulk.begin", None),
    ("alert silence", "1h"): ("alert.silence", None),
}
"""Commands in the order in which they are run, with action and subject of their entries; JOB and BATCH are names."""

_ELSEWHERE = {
    "alert apply",
    "alert remove",
    "alert unsilence",
    "bulk abort",
    "failure-group resolve",
    "failure-group mute",
    "failure-group reopen",
    "store erase",
    "store import",
}
"""Audited commands that need more than one line to do something; the tests of their nouns run them."""

_READING = """
    worker control status|worker control stacks|job logs|job list|job explain|job history|job attempts|job show
    job waiting|bulk list|bulk show|definition show|definition list|definition versions|task list|task show|node list
    node show|node allocations|pool list|pool show|pool waiting|quota list|queue list|queue show|schedule history
    schedule list|schedule next|schedule explain|schedule show|reaction list|reaction show
    workflow validate|workflow schema|workflow list|workflow show|workflow versions|workflow diff|run list|run show
    run steps|run graph|run timeline|run logs|dlq list|dlq groups|dlq show|dlq export
    failure-group list
    dlq archive|alert list|alert rules|alert silences|alert notices|topology plan|topology diff|topology export
    topology policies|topology permissions|store current|store check|store read|audit list|audit verify|audit export
    workers|top|stats|usage|failures|status|doctor|probe
"""
_NO_OPERATORS = """
    demo|dev|bench|worker|beat|scheduler|server|send|job submit|alert test|store upgrade
    admin init|admin restored|admin user add|admin user list|admin user show|admin user password|admin user disable
    admin user enable|admin user remove|admin token add|admin token list|admin token remove|admin tenant add
    admin tenant list|admin tenant disable|admin tenant enable|admin tenant remove|admin role add|admin role list
    admin role remove|admin role permissions
"""
"""Processes, submissions, the tables of the audit itself, and accounts, whose changes have entries of their own."""


@pytest.fixture
def shop(home: Path, taskmq: Here, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    (home / "shop.py").write_text(_APP)
    (home / "weekly.json").write_text(_FILE)
    # No scheduler runs.
    monkeypatch.setattr("taskmq.workflow.runs.service._PATIENCE", 0.0)

    def run(*words: str) -> Result:
        return taskmq("--app", "shop:app", "-o", "json", *words)

    assert run("store", "upgrade").code == 0
    declare("images", "other")
    asyncio.run(_add_node(home / "jobs.db"))
    return run


async def _add_node(path: Path) -> None:
    store = open_job_store(f"sqlite:///{path}", BrokerOptions(name="test"))
    await store.nodes.report([NodeTold(name="gpu-1")])
    await store.aclose()


def _begin_batch() -> str:
    with TaskMQ("local://.taskmq", store="sqlite:///jobs.db") as app:

        @app.task(name="double", queue="images")
        def double(number: int) -> int:
            return number * 2

        return batch(double.s(1)).send().id


def test_each_change_by_the_command_line_is_audited_with_its_user(shop: Callable[..., Result]) -> None:
    job = shop("job", "submit", "double", "--args", "[1]", "--delay", "2h", "--job-id", "arch-1", "--tenant", "acme")
    assert job.code == 0, job.err
    bury("images.dlq", ["dead"])
    found: dict[tuple[str, ...], object] = {}
    version = shop("workflow", "apply", "weekly.json").data["version"]
    names = {"JOB": "@acme:arch-1", "BATCH": _begin_batch(), "VERSION": version}
    for (words, *options), (action, subject) in _CHANGES.items():
        line = [names.get(word, word) for word in (*words.split(), *options)]

        result = shop(*line, "--by", f"ann {words}")

        about = () if subject is None else ("--subject", names.get(subject, subject))
        entries = shop("audit", "list", "--action", action, *about).data
        if not any(entry["user"] == f"ann {words}" and entry["action"] == action for entry in entries):
            found[words, *options] = (result.code, result.err, entries)

    assert found == {}


def test_every_command_is_audited_or_known_to_change_nothing() -> None:
    known = {one.strip() for one in f"{_READING}\n{_NO_OPERATORS}".replace("|", "\n").split("\n")}
    found = {" ".join(words): command for words, command in commands()}
    audited = {words for words, command in found.items() if "by_whom" in inspect.signature(command).parameters}

    assert audited == {words for words, *_ in _CHANGES} | _ELSEWHERE
    assert found.keys() - audited == known - {""}


def test_a_queue_is_paused_without_the_store_and_the_operator_is_told(
    shop: Callable[..., Result], home: Path
) -> None:
    (home / "jobs.db").write_bytes(b"no database at all, of some length")

    paused = shop("queue", "pause", "images")

    assert paused.code == 0
    assert "not recorded in the audit: " in paused.err
    assert "queue images is paused since " in paused.err


def test_the_list_of_queues_names_the_user_who_paused_one(shop: Callable[..., Result], taskmq: Here) -> None:
    assert shop("queue", "pause", "images", "--note", "printer", "--by", "ann").code == 0

    listed = taskmq("--app", "shop:app", "queue", "list")
    shown = shop("queue", "show", "images").data

    assert " by ann (printer)" in listed.out
    assert (shown["paused"]["by"], shown["paused"]["note"]) == ("ann", "printer")


def test_a_schedule_of_a_tenant_is_explained_by_its_name(shop: Callable[..., Result]) -> None:
    words = ("double", "--cron", "30 2 1 * *", "--args", "[1]")
    assert shop("schedule", "add", "@acme:statements", *words).code == 0

    explained = shop("schedule", "explain", "@acme:statements")
    absent = shop("schedule", "explain", "@acme:none")
    macro = shop("schedule", "explain", "@yearly")

    assert (explained.data["name"], explained.data["starts"]) == ("statements", "double")
    assert (absent.code, "nor a schedule of the app" in absent.err) == (3, True)
    assert macro.data["expression"] == "@yearly"


def test_history_and_audit_record_old_and_new_values_and_no_arguments(shop: Callable[..., Result]) -> None:
    submitted = shop("job", "submit", "double", "--args", "[1]", "--at", "2099-01-01T00:00:00Z", "--priority", "5")
    job = submitted.data["job_id"]
    change = ("--priority", "8", "--at", "2099-01-02T00:00:00Z", "--args", "[4711]")
    assert shop("job", "change", job, *change).code == 0

    words = "due 2099-01-01T00:00:00+00:00 -> 2099-01-02T00:00:00+00:00, priority 5 -> 8, arguments"
    (entry,) = shop("job", "history", job).data
    (audited,) = shop("audit", "list", "--subject", job).data

    assert entry["note"] == words
    assert audited["after"]["changed"] == words


def test_the_user_of_a_server_token_is_not_named_on_the_command_line(taskmq: Here) -> None:
    result = taskmq("--server", "http://127.0.0.1:1", "queue", "pause", "images", "--by", "ann")

    assert (result.code, "--by does not work through a server" in result.err) == (2, True)


def commands() -> Iterator[tuple[tuple[str, ...], Callable[..., Any]]]:
    for name, (path, _) in _COMMANDS.items():
        module, _, attribute = path.partition(":")
        found = getattr(importlib.import_module(module), attribute)
        if isinstance(found, App):
            yield from _below(found, (name,))
        else:
            yield (name,), found


def _below(app: App, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Callable[..., Any]]]:
    if app.default_command is not None:
        yield words, app.default_command
    for name in app:
        if not name.startswith("-"):
            yield from _below(app[name], (*words, name))
