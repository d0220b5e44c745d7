"""`taskmq store`."""

import asyncio
import json
from pathlib import Path

from taskmq.contracts.broker import BrokerOptions
from taskmq.model.jobs.proofs import ReportKey
from taskmq.operations.retention import ArchivedDay, archive_days
from taskmq_sql import open_job_store
from tests.cli.kit import Here


def test_a_new_file_has_the_tables_of_this_version_at_once(taskmq: Here, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'jobs.db'}"

    upgraded, checked = taskmq("store", "upgrade", "--store", store), taskmq("store", "check", "--store", store)

    assert (upgraded.code, checked.code) == (0, 0)
    assert "has the tables of this version" in upgraded.err


def test_a_database_gets_its_tables_by_the_command_and_jobs_are_refused_before(
    taskmq: Here, postgres_url: str
) -> None:
    before = taskmq("store", "check", "--store", postgres_url)
    upgraded = taskmq("store", "upgrade", "--store", postgres_url)
    version = taskmq("-o", "json", "store", "current", "--store", postgres_url)

    assert before.code == 8
    assert "taskmq store upgrade" in before.err
    assert upgraded.code == 0
    assert version.data["version"]


def test_without_a_store_the_command_names_the_setting(taskmq: Here) -> None:
    result = taskmq("store", "check")

    assert result.code == 2
    assert "need a store" in result.err


def test_an_unreachable_store_is_distinguished_from_an_unprepared_one(taskmq: Here) -> None:
    assert taskmq("store", "current", "--store", "postgresql://nobody@127.0.0.1:1/none").code == 5


def test_ended_jobs_are_deleted_by_command_in_whole_days(taskmq: Here, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'jobs.db'}"

    pruned = taskmq("store", "prune", "--older-than", "7d", "--store", store)
    hours = taskmq("store", "prune", "--older-than", "36h", "--store", store)
    none = taskmq("store", "prune", "--older-than", "0d", "--store", store)

    assert (pruned.code, "ended over 7d ago" in pruned.err) == (0, True)
    assert (hours.code, none.code) == (2, 2)
    assert "whole days, at least 1d" in hours.err


def test_a_report_key_is_rotated_with_an_audit_entry_and_never_shown(taskmq: Here, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'jobs.db'}"

    before = _keys(store)
    first = taskmq("store", "rotate-key", "--store", store)
    second = taskmq("store", "rotate-key", "--store", store)
    kept = _keys(store)
    third = taskmq("store", "rotate-key", "--forget-older", "--yes", "--store", store)
    audit = taskmq("-o", "json", "audit", "list", "--store", store)

    (left,) = _keys(store)
    assert [one.code for one in (first, second, third)] == [0, 0, 0]
    assert [key.id for key in kept[2:]] == [key.id for key in before]
    assert [f"key {key.id} " in said.err for key, said in zip(kept, (second, first), strict=False)] == [True, True]
    assert f"key {left.id} within half a minute; back up the store now" in third.err
    assert [(entry["action"], entry["after"]) for entry in audit.data] == [
        ("store.rotate_key", {"forgets_older": True}),
        ("store.rotate_key", {"forgets_older": False}),
        ("store.rotate_key", {"forgets_older": False}),
    ]
    printed = "".join(one.out + one.err for one in (first, second, third, audit))
    assert all(secret not in printed for key in (*kept, left) for secret in (key.secret.hex(), repr(key.secret)))


def _keys(url: str) -> list[ReportKey]:
    async def read() -> list[ReportKey]:
        store = open_job_store(url, BrokerOptions(name="tests"))
        try:
            return await store.dispatching.report_keys()
        finally:
            await store.aclose()

    return asyncio.run(read())


def test_schedules_of_beats_move_to_the_store_after_a_preview(taskmq: Here, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'jobs.db'}"
    where = ["--app", "made:app", "--store", store]
    (tmp_path / "made.py").write_text(
        "from taskmq import TaskMQ\n"
        'app = TaskMQ("local://.broker", name="made")\n'
        '@app.task(name="tick")\n'
        "def tick(number: int = 0) -> None: ...\n"
    )
    added = taskmq("--app", "made:app", "schedule", "add", "mine", "tick", "--every", "1h", "--args", "[7]")

    shown = taskmq("-o", "json", "store", "import", "--dry-run", *where)
    before = taskmq("-o", "json", "schedule", "list", *where)
    unasked = taskmq("store", "import", *where)
    moved = taskmq("store", "import", "--yes", *where)
    after = taskmq("-o", "json", "schedule", "list", *where)
    again = taskmq("-o", "json", "store", "import", *where)
    history = taskmq("schedule", "history", "mine", *where)
    beat = taskmq("beat", "made:app", "--store", store)

    assert added.code == 0, added.err
    assert shown.data == [{"what": "schedule", "name": "mine", "outcome": "moves", "note": ""}]
    assert before.data == []
    assert (unasked.code, moved.code) == (1, 0), moved.err
    assert [(row["name"], row["starts"], row["rule"]) for row in after.data] == [("mine", "tick", "every hour")]
    assert again.data == []
    assert "0 fired" in history.err
    assert beat.code != 0
    assert "taskmq store import" in beat.err


def test_an_import_prints_one_array_and_notes_refusals_of_the_store(taskmq: Here, tmp_path: Path) -> None:
    where = ["--app", "made:app", "--store", f"sqlite:///{tmp_path / 'jobs.db'}"]
    for module, delay in (("before", "state"), ("made", "broker")):
        (tmp_path / f"{module}.py").write_text(
            "from taskmq import TaskMQ\n"
            f'app = TaskMQ("local://.broker", name="made", delay="{delay}")\n'
            '@app.task(name="tick")\n'
            "def tick(number: int = 0) -> None: ...\n"
        )
    sent = taskmq("--app", "before:app", "-o", "json", "send", "tick", "--args", "[7]", "--delay", "1h")
    assert sent.code == 0, sent.err
    job = sent.data["job"]
    submitted = taskmq("job", "submit", "tick", "--args", "[8]", "--job-id", job, *where)
    assert submitted.code == 0, submitted.err

    moved = taskmq("-o", "json", "store", "import", "--yes", *where)

    assert moved.code == 6
    assert moved.data == [{"what": "job", "name": job, "outcome": "moves", "note": ""}]
    assert f"job {job} stays: job {job!r} exists with different content" in moved.err


def test_ended_jobs_are_archived_read_thinned_out_and_erased(taskmq: Here, tmp_path: Path) -> None:
    where = ["--app", "made:app", "--store", f"sqlite:///{tmp_path / 'jobs.db'}"]
    (tmp_path / "made.py").write_text(
        "from taskmq import TaskMQ\n"
        'app = TaskMQ("local://.broker", name="made")\n'
        '@app.task(name="report")\n'
        "def report(month: str) -> str:\n"
        "    return month\n"
    )
    for job in ("first", "second"):
        submitted = taskmq(
            "job", "submit", "report", "--args", '["2027-01"]', "--job-id", job, "--label", "who=ann", *where
        )
        assert submitted.code == 0, submitted.err
        assert taskmq("job", "cancel", job, *where).code == 0

    async def archive() -> list[ArchivedDay]:
        store = open_job_store(where[-1], BrokerOptions(name="archive"))
        try:
            return await archive_days(store, tmp_path / "kept", keep_days=-1)
        finally:
            await store.aclose()

    # Midnight may have passed between them.
    lines = [line for day in asyncio.run(archive()) for line in taskmq("store", "read", day.file).out.splitlines()]
    jobs = {job["key"]: job for job in (json.loads(line)["job"] for line in lines)}
    assert sorted(jobs) == ["first", "second"]
    assert (jobs["first"]["body"]["args"], jobs["first"]["state"]) == (["2027-01"], "cancelled")
    none = taskmq("-o", "json", "store", "archive", "kept", *where)
    thinned = taskmq("store", "prune", "--where", "status:cancelled", "--keep-last", "1", *where)
    refused = taskmq("store", "prune", *where)
    sent = taskmq("store", "prune", "--where", "via:broker", "--keep-last", "1", *where)
    erased = taskmq("store", "erase", "label.who:ann", "--yes", *where)
    everything = taskmq("store", "erase", "--yes", *where)

    assert (none.code, none.data) == (0, [])
    assert "1 jobs deleted" in thinned.err
    assert (refused.code, everything.code) == (2, 2)
    assert (sent.code, "via:broker selects sent jobs" in sent.err) == (2, True)
    assert (erased.code, "1 jobs erased" in erased.err) == (0, True)
    assert taskmq("-o", "json", "job", "list", *where).data == []
    assert taskmq("store", "read", "kept/none.ndjson.gz").code != 0
