"""`taskmq job` over an app with a store."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.model.history.suspensions import SUSPENDED, describe_wait
from taskmq.model.outcome import ErrorRecord
from taskmq.model.units import LAST_INSTANT
from taskmq.operations import jobs as operations
from taskmq.testing.job_store_suite.driver import JobDriver
from tests.cli.kit import Here, Result, bury, declare, run_on_terminal

_APP = """\
from taskmq import TaskMQ

app = TaskMQ(store="sqlite:///jobs.db")


@app.task(name="report", queue="reports")
def report(month: str, *, queue: str = "") -> str:
    return month
"""


@pytest.fixture
def shop(home: Path, taskmq: Here, monkeypatch: pytest.MonkeyPatch) -> "Shop":
    # No worker runs, so none has to be waited for.
    monkeypatch.setattr(operations, "report_job", partial(operations.report_job, within=0.01))
    (home / "shop.py").write_text(_APP)
    return Shop(taskmq)


class Shop:
    """The command line of an app, with parsed output."""

    def __init__(self, taskmq: Here) -> None:
        self._taskmq = taskmq

    def __call__(self, *words: str) -> Result:
        return self._taskmq("job", *words, "--app", "shop:app", "-o", "json")

    def submit(self, *words: str) -> str:
        result = self("submit", "report", "--args", '["2027-01"]', *words)
        assert result.code == 0, result.err
        return str(result.data["job_id"])

    def state(self, job: str) -> str:
        return str(self("show", job).data["state"])

    def list_ids(self, *words: str) -> list[str]:
        result = self("list", *words)
        assert result.code == 0, result.err
        return [row["job_id"] for row in result.data]


async def _suspend(folder: Path) -> None:
    async with TaskMQ(f"local://{folder}/broker", store=f"sqlite:///{folder}/jobs.db") as app:
        driver = JobDriver(app.sessions.store())
        why = ErrorRecord(type_name=SUSPENDED, message=describe_wait("go", LAST_INSTANT))
        await driver.expect_accepted(await driver.dispatch_new(), "snoozed", until=LAST_INSTANT, error=why)


def test_a_list_and_a_job_show_what_a_suspended_job_waits_for(home: Path, shop: Shop, taskmq: Here) -> None:
    asyncio.run(_suspend(home))
    (job,) = shop.list_ids()

    listed = taskmq("job", "list", "--app", "shop:app", "-o", "table").out
    shown = taskmq("job", "show", job, "--app", "shop:app", "-o", "table").out

    assert listed.splitlines()[0].split()[-1] == "reason"
    assert listed.rstrip().endswith("waiting for the signal 'go'")
    assert "waiting for the signal 'go'" in shown


def test_a_submitted_job_shows_its_arguments_only_on_request(shop: Shop) -> None:
    submitted = shop("submit", "report", "--args", '["2027-01"]', "--kwargs", '{"queue": "x"}', "--delay", "2h")

    assert submitted.code == 0
    job = submitted.data["job_id"]
    facts = {name: submitted.data[name] for name in ("id", "task", "queue", "state")}
    assert facts == {"id": job, "task": "report", "queue": "reports", "state": "scheduled"}
    shown, with_values = shop("show", job), shop("show", job, "--values")
    assert (shown.data["state"], shown.data["queue"], shown.data["attempt"]) == ("scheduled", "reports", 1)
    assert "2027-01" not in shown.out
    assert (with_values.data["args"], with_values.data["payload"]) == (["2027-01"], {"queue": "x"})


def test_an_unknown_task_and_mismatching_arguments_are_refused(shop: Shop) -> None:
    unknown, unfit = shop("submit", "raport"), shop("submit", "report", "--kwargs", '{"year": 1}')

    assert unknown.code == 3
    assert "report" in unknown.err
    assert unfit.code == 2
    assert shop("list", "--count").data == {"count": 0, "is_exact": True}


def test_a_chosen_id_is_one_job_and_a_conflict_with_other_content(shop: Shop) -> None:
    words = ("--job-id", "jan", "--tenant", "acme", "--delay", "1h")

    assert shop.submit(*words) == shop.submit(*words) == "jan"
    refused = shop("submit", "report", "--args", '["2027-02"]', *words)

    assert refused.code == 6
    assert shop.list_ids() == ["@acme:jan"]


def test_jobs_are_listed_by_a_filter_page_by_page_and_counted(shop: Shop) -> None:
    ids = [shop.submit("--job-id", f"j{number}", "--label", f"n={number % 2}", "--held") for number in range(4)]
    ids.append(shop.submit("--job-id", "last", "--delay", "1h"))

    assert shop.list_ids() == ids[::-1]
    assert shop.list_ids("label.n:1") == ["j3", "j1"]
    assert shop("list", "status:held", "--count").data == {"count": 4, "is_exact": True}
    first = shop("list", "--limit", "3")
    assert [row["job_id"] for row in first.data] == ["last", "j3", "j2"]
    after = first.err.split("--after ")[1].strip()
    assert shop.list_ids("--limit", "3", "--after", after) == ["j1", "j0"]


def test_an_invalid_filter_is_reported_with_its_position(shop: Shop) -> None:
    result = shop("list", "staus:failed")

    assert result.code == 2
    assert "status" in result.err


def test_a_job_is_changed_for_the_seen_version(shop: Shop) -> None:
    job = shop.submit("--delay", "2h")

    changed = shop("change", job, "--delay", "30m", "--priority", "8", "--args", '["2027-03"]', "--version", "1")
    late = shop("change", job, "--priority", "1", "--version", "1")

    assert (changed.code, changed.data["version"], changed.data["priority"]) == (0, 2, 8)
    assert late.code == 6
    assert shop("show", job, "--values").data["args"] == ["2027-03"]
    assert shop("change", job).code == 2


def test_jobs_are_held_and_released_and_their_history_records_it(shop: Shop) -> None:
    job = shop.submit("--delay", "2h")

    held = shop("hold", job, "--note", "wait for ann", "--by", "bob")
    assert held.data == [{"job": job, "state": "held", "refused": ""}]
    explained = shop("explain", job).data
    assert explained["answer"] == "it is held by an operator"
    assert "release it" in [each["text"] for each in explained["alternatives"]]
    assert shop("release", job).data[0]["state"] == "scheduled"

    history = shop("history", job).data
    assert [(row["kind"], row["state"]) for row in history] == [("hold", "held"), ("release", "scheduled")]
    assert (history[0]["by"], history[0]["note"]) == ("bob", "wait for ann")
    assert history[1]["by"]
    assert shop("attempts", job).data == []


def test_an_ended_job_is_explained_without_reasons(shop: Shop, taskmq: Here) -> None:
    job = shop.submit("--delay", "2h")
    assert shop("cancel", job).code == 0

    assert shop("explain", job).data["reasons"] == []
    lines = taskmq("job", "explain", job, "--app", "shop:app").out.splitlines()
    assert [line.split() for line in lines] == [["job", job], ["state", "cancelled"]]


def test_a_waiting_job_is_cancelled_and_run_again_as_a_new_one(shop: Shop) -> None:
    job = shop.submit("--delay", "2h")

    assert shop("cancel", job, "--reason", "not needed").code == 0
    assert shop.state(job) == "cancelled"
    assert shop("cancel", job).code == 3
    again = shop("retry", job)
    assert again.code == 0
    clone = shop("clone", job, "--new-id", "second", "--at", "2100-01-01T00:00+00:00")
    assert (clone.data["job_id"], clone.data["status"]) == ("second", "cloned")
    assert sorted(shop.list_ids("status:queued,scheduled")) == sorted([again.data[0]["state"].split()[-1], "second"])


def test_a_job_is_retried_once_and_shows_its_retry_unless_repeated_explicitly(shop: Shop) -> None:
    job = shop.submit("--delay", "2h")
    shop("cancel", job)

    first, second, third = shop("retry", job), shop("retry", job), shop("retry", job, "--again")

    assert [one.code for one in (first, second, third)] == [0, 6, 0]
    assert first.data[0]["state"].split()[-1] in second.data[0]["refused"]
    retried_as = third.data[0]["state"].split()[-1]
    assert shop("show", job).data["retried_as"] == retried_as
    assert shop("show", retried_as).data["retry_of"] == job
    assert shop.list_ids("status:cancelled") == []
    assert shop.list_ids("status:cancelled retried:yes") == [job]


def test_a_waiting_job_is_rescheduled(shop: Shop) -> None:
    job = shop.submit("--delay", "2h")

    assert shop("reschedule", job, "--eta", "2100-01-01T00:00+00:00").code == 0
    assert shop("show", job).data["due_at"] == "2100-01-01T00:00:00.000Z"
    shop("cancel", job)
    assert shop("reschedule", job, "--delay", "1m").code == 3


def test_many_jobs_are_changed_at_once_and_each_refusal_is_reported(shop: Shop) -> None:
    jobs = [shop.submit("--delay", "1h") for _ in range(3)]
    shop("cancel", jobs[0])

    some = shop("hold", *jobs, "nobody")
    assert some.code == 6
    assert [row["state"] for row in some.data] == ["cancelled", "held", "held", "unknown"]
    assert all(row["refused"] for row in (some.data[0], some.data[3]))

    released = shop("release", *jobs[1:])
    assert [row["state"] for row in released.data] == ["scheduled", "scheduled"]
    nothing = shop("hold")
    assert nothing.code == 2
    assert "taskmq bulk begin hold FILTER" in nothing.err


@pytest.mark.nightly("tests/cli/test_job.py::test_an_unknown_job_is_not_found_and_its_state_is_not_guessed")
def test_a_job_unknown_to_the_store_may_be_known_elsewhere(shop: Shop) -> None:
    assert shop("show", "nobody").code == 3
    assert shop("explain", "nobody").code == 3


def test_a_name_without_the_prefix_of_its_tenant_suggests_the_whole_name(shop: Shop) -> None:
    shop.submit("--job-id", "render-2", "--tenant", "acme", "--delay", "2h")

    for words in (
        ("show",),
        ("explain",),
        ("history",),
        ("attempts",),
        ("logs",),
        ("clone",),
        ("change", "--priority", "3"),
    ):
        result = shop(words[0], "render-2", *words[1:])
        assert (result.code, "there is '@acme:render-2'" in result.err) == (3, True), (words, result.err)
    (held,) = shop("hold", "render-2").data
    assert held["refused"].endswith("there is '@acme:render-2': give the full name, or --tenant")

    assert shop("show", "render-2", "--tenant", "acme").data["state"] == "scheduled"
    assert [row["state"] for row in shop("hold", "render-2", "--tenant", "acme").data] == ["held"]
    assert shop("history", "render-2", "--tenant", "acme").data[0]["kind"] == "hold"
    assert shop("show", "render-2", "--tenant", "zeta").code == 3


def test_a_broker_job_is_answered_with_the_suitable_command(shop: Shop) -> None:
    declare("reports")
    bury("reports.dlq", ["sent-1"], task="report")

    (retried,) = shop("retry", "sent-1").data
    logs = shop("logs", "sent-1")

    hint = "it is a dead letter at the broker: `taskmq dlq replay reports --job sent-1` runs it again"
    assert retried["refused"].endswith(hint)
    assert (logs.code, hint in logs.err) == (3, True)


def test_the_audit_of_a_job_is_found_by_its_own_name(shop: Shop, taskmq: Here) -> None:
    shop.submit("--job-id", "arch-1", "--tenant", "acme", "--delay", "2h")
    assert shop("cancel", "@acme:arch-1", "--by", "ann").code == 0

    found = [
        taskmq("--app", "shop:app", "-o", "json", "audit", "list", *words).data
        for words in (
            ("--subject", "@acme:arch-1"),
            ("--subject", "arch-1", "--tenant", "acme"),
            ("--subject", "arch-1"),
            ("--subject", "@acme:arch-1", "--kind", "queue"),
        )
    ]

    assert [[(row["action"], row["user"]) for row in rows] for rows in found] == [
        [("job.cancel", "ann")],
        [("job.cancel", "ann")],
        [],
        [],
    ]


def test_without_a_store_the_commands_say_what_is_missing(taskmq: Here, home: Path) -> None:
    result = taskmq("job", "list")

    assert result.code == 2
    assert "need a store" in result.err
    assert taskmq("job", "list", "--store", f"sqlite:///{home}/other.db", "-o", "json").data == []


def test_a_job_waits_for_the_named_jobs(shop: Shop) -> None:
    first = shop.submit("--job-id", "first", "--delay", "2h")

    job = shop.submit("--depends-on", first, "--depends-on", f"ended={shop.submit('--delay', '1h')}")

    assert shop.state(job) == "waiting"
    assert [each["condition"] for each in shop("show", job).data["depends_on"]] == ["succeeded", "ended"]
    assert "it waits for job first of task report" in shop("explain", job).out
    assert shop("submit", "report", "--args", '["x"]', "--depends-on", "nobody").code == 3


def test_a_retry_says_how_many_dependents_wait_again(shop: Shop) -> None:
    first = shop.submit("--job-id", "first", "--delay", "2h")
    job = shop.submit("--depends-on", first)
    shop("cancel", first)

    again = shop("retry", first)

    assert "dependents that wait for the new run: 1" in again.err
    assert shop.state(job) == "waiting"
    entries = shop("history", job).data
    assert [(entry["kind"], entry["state"]) for entry in entries] == [
        ("ended", "upstream_failed"),
        ("retry", "waiting"),
    ]


def test_a_progress_bar_is_shown_only_on_a_terminal(home: Path, shop: Shop) -> None:
    shop.submit("--delay", "2h")
    erase = ("store", "erase", "queue:reports", "--yes", "--app", "shop:app")

    on_terminal = run_on_terminal(home, *erase)
    shop.submit("--delay", "2h")
    in_json = run_on_terminal(home, *erase, "-o", "json")

    assert (on_terminal.code, in_json.code) == (0, 0)
    assert "erasing jobs" in on_terminal.out
    assert "erasing jobs" not in in_json.out
