"""Logs, figures, failures and alerts over HTTP."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskmq import TaskMQ
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.history import QueueDepth, Remembering
from taskmq.contracts.jobs import JobStore
from taskmq.errors import InvalidOption
from taskmq.model.history.alerts import Alert, AlertState
from taskmq.model.history.logs import RunLine, RunLog
from taskmq.model.history.rollups import MINUTE, QUARTER, Rollup, RollupKey, RunFailure, minute_of
from taskmq.operations.history import TenantFigures
from taskmq.testing.job_store_suite.driver import JobDriver
from taskmq_sql import open_job_store
from tests.unit.app_kit import new_url
from tests.unit.server.kit import Site

_RULE = {"metric": "failure_rate", "threshold": 0.5, "channels": ["mailto:ops@example.com"]}


def _use_store(site: Site, use: Callable[[JobStore, Any], Awaitable[Any]]) -> Any:
    """Call the site's store like another process."""

    async def run() -> Any:
        store = open_job_store(site.app.sessions.store_url or "", BrokerOptions(name="test"))
        assert isinstance(store, Remembering)
        try:
            return await use(store, store.history)
        finally:
            await store.aclose()

    return asyncio.run(run())


def _start_logging_job(site: Site, *lines: tuple[int, str], tenant: str = "acme") -> str:
    """Start a job that has logged this; return its id."""

    async def log(store: JobStore, history: Any) -> str:
        job = await JobDriver(store).dispatch_new(tenant=tenant, queue=f"of-{tenant}")
        now = await store.now_ms()
        added = [RunLine(now, level, "shop", message) for level, message in lines]
        await history.logs.add([RunLog(id=job.id, token=job.token, lines=added)])
        return job.id

    found: str = _use_store(site, log)
    return found


def _messages(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [item["message"] for item in answer.json()["items"]]


def test_the_log_of_a_job_is_read_and_followed(site: Site) -> None:
    job = _start_logging_job(site, (20, "begins"), (40, "it fails"), (20, "ends"))

    first = site("GET", f"/jobs/{job}/logs?limit=2")
    rest = site("GET", f"/jobs/{job}/logs", params={"cursor": first.json()["next"]})
    end = site("GET", f"/jobs/{job}/logs", params={"cursor": rest.json()["next"]})

    assert [_messages(answer) for answer in (first, rest, end)] == [["begins", "it fails"], ["ends"], []]
    assert end.json()["next"] == rest.json()["next"]
    assert _messages(site("GET", f"/jobs/{job}/logs?level=error")) == ["it fails"]
    assert _messages(site("GET", f"/jobs/{job}/logs?text=FAILS")) == ["it fails"]
    assert _messages(site("GET", f"/jobs/{job}/logs?text=FAILS&attempt=1")) == ["it fails"]
    assert _messages(site("GET", f"/jobs/{job}/logs?attempt=2")) == []
    line = site("GET", f"/jobs/{job}/logs?level=error").json()["items"][0]
    assert (line["log_level"], line["log_message"], line["log_time"]) == ("ERROR", "it fails", line["at"])


def test_the_log_of_a_job_is_downloaded_as_text(site: Site) -> None:
    job = _start_logging_job(site, (20, "begins <b>"), (40, "it fails"))

    answer = site("GET", f"/jobs/{job}/logs/text")

    assert [line.partition(" ")[2] for line in answer.text.splitlines()] == [
        "INFO     shop: begins <b>",
        "ERROR    shop: it fails",
    ]
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"].startswith("attachment")


def test_a_long_log_is_downloaded_page_by_page_up_to_its_limit(site: Site) -> None:
    job = _start_logging_job(site, *((20, f"line {number}") for number in range(10_050)))

    with site.client.stream(
        "GET", f"/api/v1/jobs/{job}/logs/text", headers={"Authorization": "Bearer acme-admin"}
    ) as answer:
        lines = list(answer.iter_lines())

    assert "content-length" not in answer.headers
    assert [line.rpartition(" ")[2] for line in lines] == [str(number) for number in range(10_000)]


def test_logs_are_searched_from_the_last_line(site: Site) -> None:
    job = _start_logging_job(site, (20, "one"), (40, "two"))

    assert _messages(site("GET", "/logs")) == ["two", "one"]
    page = site("GET", "/logs?limit=1")
    assert _messages(site("GET", "/logs", params={"cursor": page.json()["next"]})) == ["one"]
    assert _messages(site("GET", f"/logs?job_id={job}&level=error&task=send_mail")) == ["two"]
    assert _messages(site("GET", "/logs?until=2020-01-01T00:00:00Z")) == []
    assert site("GET", "/logs?cursor=x").json()["code"] == "invalid_field"
    assert site("GET", "/logs?level=loud").status_code == 400


def test_the_log_query_of_the_document_is_answered(site: Site) -> None:
    job = _start_logging_job(site, (20, "one"), (40, "two"))
    query = {"job_id": job, "level": "ERROR", "text": "two", "start_time": "2020-01-01T00:00:00Z"}

    assert _messages(site("GET", "/logs/query", params=query)) == ["two"]
    assert site("GET", "/logs/query?level=LOUD").status_code == 400


def test_logs_of_a_foreign_tenant_cannot_be_read(site: Site) -> None:
    job = _start_logging_job(site, (20, "secret"))

    assert site("GET", f"/jobs/{job}/logs", by="other-admin").status_code == 404
    assert site("GET", f"/jobs/{job}/logs/text", by="other-admin").status_code == 404
    assert site("GET", f"/logs?job_id={job}", by="other-admin").status_code == 404
    assert _messages(site("GET", "/logs", by="other-admin")) == []
    assert _messages(site("GET", "/logs", by="all-viewer")) == ["secret"]


def _values(series: Any) -> list[float]:
    return [point["value"] for point in series["points"] if point["value"] is not None]


def _store_counts(site: Site) -> None:
    async def add(store: JobStore, history: Any) -> None:
        now = await store.now_ms()
        for tenant, outcome in (("acme", "succeeded"), ("acme", "dead"), ("other", "dead")):
            rollup = Rollup(RollupKey(minute_of(now), "mail.send", "mail", tenant), {"started": 1, outcome: 1})
            rollup.waited.add(0.1)
            rollup.ran.add(2.0)
            failure = RunFailure(
                at=now, job=f"of {tenant}", event="dead", task="mail.send", queue="mail", tenant=tenant
            )
            await history.rollups.add([rollup], [failure] if outcome == "dead" else [])

    _use_store(site, add)


def _store_depths(site: Site) -> None:
    async def add(store: JobStore, history: Any) -> None:
        at = minute_of(await store.now_ms())
        mail = QueueDepth(queue="mail", at=at, stored=7, ready=0, in_hand=1)
        await history.depths.add([mail, QueueDepth(queue="images", at=at, stored=5, ready=0, in_hand=2)])

    _use_store(site, add)


def test_counts_are_reported_by_task_and_queue(site: Site) -> None:
    _store_counts(site)

    (own,) = site("GET", "/rollups").json()["items"]
    (whole,) = site("GET", "/rollups?by=", by="all-viewer").json()["items"]

    assert (own["task"], own["queue"], own["ended"], own["failed"], own["failure_rate"]) == (
        "mail.send",
        "mail",
        2,
        1,
        0.5,
    )
    assert own["outcomes"] == {"started": 2, "succeeded": 1, "dead": 1}
    assert own["wait_p95"] == pytest.approx(0.1, rel=0.45)
    assert (whole["task"], whole["ended"]) == ("", 3)
    assert site("GET", "/rollups?task=other").json()["items"] == []


@pytest.mark.parametrize(("path", "field"), [("/metrics/get", "name"), ("/metrics/query?step=60", "metric")])
def test_a_missing_parameter_is_named(site: Site, path: str, field: str) -> None:
    answer = site("GET", path)

    assert answer.status_code == 400
    (error,) = answer.json()["errors"]
    assert error == {"field": field, "message": "is missing: it is a required query parameter"}


def test_figures_over_time_accept_the_terms_of_the_document(site: Site) -> None:
    _store_counts(site)

    answer = site("GET", "/metrics/query?metric=failure_rate,ended&by=task").json()
    document = site("GET", "/metrics/get?name=failure_rate").json()

    assert [(each["metric"], each["labels"]) for each in answer["items"]] == [
        ("failure_rate", {"task": "mail.send"}),
        ("ended", {"task": "mail.send"}),
    ]
    assert [_values(each) for each in answer["items"]] == [[0.5], [2.0]]
    assert _values(document["items"][0]) == [0.5]
    assert len(document["items"][0]["points"]) in {60, 61}
    for query in (
        "metric=loud",
        "metric=ended&by=worker",
        "metric=ended&step=61",
        "metric=ended&since=2020-01-01T00:00Z",
    ):
        assert site("GET", f"/metrics/query?{query}").status_code == 400, query


def test_versions_of_the_app_are_returned_for_the_time_of_the_figures(site: Site) -> None:
    async def add(store: JobStore, history: Any) -> None:
        now = await store.now_ms()
        await history.versions.report([("w1", "1")], at=now - 7_200_000)
        await history.versions.report([("w1", "2"), ("w2", "2")], at=now - 60_000)

    _use_store(site, add)
    query = "/metrics/query?metric=ended"
    long_ago = (datetime.now(UTC) - timedelta(hours=3)).strftime("%Y-%m-%dT%H:%M:%SZ")

    last_hour = site("GET", query, by="all-viewer").json()["versions"]
    both = site("GET", f"{query}&since={long_ago}", by="all-viewer").json()["versions"]

    assert [(one["version"], one["first"] == one["last"]) for one in last_hour] == [("2", True)]
    assert [one["version"] for one in both] == ["1", "2"]
    assert site("GET", query, by="acme-admin").json()["versions"] == []


def test_an_attempt_has_the_version_that_its_worker_announced(site: Site) -> None:
    async def run(store: JobStore, history: Any) -> list[str]:
        driver = JobDriver(store)
        now = await store.now_ms()
        await history.versions.report([("w1", "2026.11.30-1")], at=now)
        jobs = [await driver.dispatch_new(tenant="acme", queue=worker) for worker in ("w1", "w2")]
        for job in jobs:
            await driver.expect_accepted(job, "succeeded", worker=job.queue, started=now, ran=5)
        return [job.id for job in jobs]

    found = [site("GET", f"/jobs/{job_id}/attempts").json()["items"] for job_id in _use_store(site, run)]

    assert [(one["worker"], one["app_version"]) for (one,) in found] == [("w1", "2026.11.30-1"), ("w2", "")]


def test_depths_of_queues_over_time_are_summed_or_grouped_by_queue(site: Site) -> None:
    _store_depths(site)
    query = "/metrics/query?metric=depth_stored,depth_in_hand&step=300"

    whole, each, one = (
        site("GET", query + more, by="all-viewer").json()["items"] for more in ("", "&by=queue", "&queue=mail")
    )

    assert [(item["metric"], item["labels"], _values(item)) for item in whole] == [
        ("depth_stored", {}, [12.0]),
        ("depth_in_hand", {}, [3.0]),
    ]
    assert [(item["labels"]["queue"], _values(item)) for item in each[:2]] == [("images", [5.0]), ("mail", [7.0])]
    assert [_values(item) for item in one] == [[7.0], [1.0]]
    assert site("GET", f"{query}&by=task", by="all-viewer").status_code == 400
    assert site("GET", query, by="acme-admin").json()["items"] == []


def test_cached_figures_belong_to_one_tenant_and_query(site: Site) -> None:
    _store_counts(site)

    def end_silence(by: str, more: str = "") -> float:
        answer = site("GET", f"/metrics/query?metric=ended&max_age=60{more}", by=by).json()
        return sum(_values(answer["items"][0]))

    assert [end_silence(by) for by in ("acme-admin", "other-admin", "all-viewer", "acme-admin")] == [2, 1, 3, 2]
    assert end_silence("acme-admin", "&task=none") == 0


def test_a_figure_repeated_in_a_query_is_returned_once(site: Site) -> None:
    _store_counts(site)

    answer = site("GET", "/metrics/query", params={"metric": ",".join(["ended"] * 1_000)})

    assert [each["metric"] for each in answer.json()["items"]] == ["ended"]


def test_figures_of_an_unknown_name_are_refused_with_a_hint(site: Site) -> None:
    answer = site("GET", "/rollups?by=taks")

    assert answer.status_code == 400
    assert "did you mean 'task'?" in answer.text
    assert site("GET", "/metrics/query?metric=endd").status_code == 400


def test_a_partial_count_has_no_total(site: Site) -> None:
    _store_counts(site)

    async def read(most: int) -> tuple[int, float]:
        async with TaskMQ(new_url(), store=site.app.sessions.store_url) as app:
            figures = TenantFigures(app, None, most=most)
            _, _, (total,) = await figures.totals(by=())
            (series,) = (await figures.series(["ended"]))["ended"]
            return total.ended, sum(value or 0 for _, value in series.points)

    assert asyncio.run(read(1)) == (3, 3)
    with pytest.raises(InvalidOption, match=r"^since: the answer needs more than 0 "):
        asyncio.run(read(0))


def test_long_periods_are_read_in_quarters_of_an_hour_of_all_tenants(site: Site) -> None:
    # From within one quarter to within another.
    begin, minutes = 28_000_004 * MINUTE, 200

    async def add(_: JobStore, history: Any) -> None:
        keys = [
            RollupKey(begin + number * MINUTE, "mail.send", "mail", tenant)
            for number in range(minutes)
            for tenant in ("acme", "other")
        ]
        await history.rollups.add([Rollup(key, {"succeeded": 1}) for key in keys])

    async def read(tenant: str | None, most: int) -> list[float]:
        async with TaskMQ(new_url(), store=site.app.sessions.store_url) as app:
            figures = TenantFigures(app, tenant, most=most)
            until = begin + minutes * MINUTE
            (series,) = (await figures.series(["ended"], since=begin, until=until, step=2 * QUARTER))["ended"]
            _, _, (total,) = await figures.totals(since=begin, until=until, by=())
            return [*(value or 0 for _, value in series.points), total.ended]

    _use_store(site, add)

    # One minute, thirteen quarters, four minutes.
    assert asyncio.run(read(None, 18)) == [2 * 16, *([2 * 30] * 6), 2 * 4, 2 * minutes]
    assert asyncio.run(read("acme", 18)) == [16, *([30] * 6), 4, minutes]


def test_failures_of_the_broker_lane_are_reported_to_their_tenant(site: Site) -> None:
    _store_counts(site)

    assert [each["job_id"] for each in site("GET", "/failures").json()["items"]] == ["of acme"]
    everybodys = site("GET", "/failures?limit=1", by="all-viewer").json()
    rest = site("GET", "/failures", params={"cursor": everybodys["next"]}, by="all-viewer").json()
    assert [everybodys["items"][0]["job_id"], rest["items"][0]["job_id"]] == ["of other", "of acme"]
    assert site("GET", "/failures?error=OSError").json()["items"] == []


def test_a_rule_is_created_changed_by_version_and_deleted(site: Site) -> None:
    made = site("PUT", "/alerts/rules/too-many", _RULE, by="acme-operator")
    changed = site("PUT", "/alerts/rules/too-many", {**_RULE, "threshold": 0.6}, headers={"If-Match": '"1"'})
    late = site("PUT", "/alerts/rules/too-many", _RULE, headers={"If-Match": '"1"'})

    assert (made.status_code, made.headers["etag"], made.json()["tenant"]) == (200, '"1"', "acme")
    assert (changed.json()["version"], changed.json()["threshold"]) == (2, 0.6)
    assert (late.status_code, late.json()["code"], late.json()["version"]) == (412, "version_mismatch", 2)
    assert [each["name"] for each in site("GET", "/alerts/rules").json()["items"]] == ["too-many"]
    assert site("GET", "/alerts/rules", by="other-admin").json()["items"] == []
    assert site("DELETE", "/alerts/rules/too-many", by="other-admin").status_code == 404
    assert site("DELETE", "/alerts/rules/too-many").status_code == 200
    assert site("DELETE", "/alerts/rules/too-many").json()["code"] == "rule_not_found"


def test_a_rule_about_runs_is_kept_with_its_workflow(site: Site) -> None:
    rule = {"metric": "run_late", "threshold": 3_600, "workflow": "nightly-*", "each": "workflow"}
    made = site("PUT", "/alerts/rules/late", rule, by="acme-operator").json()

    assert {name: made[name] for name in rule} == rule
    assert "run_late" in site("GET", "/alerts/metrics").json()["items"]


@pytest.mark.parametrize(
    "changes",
    [
        {"metric": "loud"},
        {"channels": ["ftp://x"]},
        {"channels": ["https://user:word@x"]},
        {"metric": "depth"},
        {"clear": 0.7},
        {"window": 1},
        {"further": 1},
        {"workflow": "nightly"},
    ],
)
def test_an_invalid_rule_is_refused(site: Site, changes: dict[str, Any]) -> None:
    assert site("PUT", "/alerts/rules/r", {**_RULE, **changes}).status_code in {400, 422}
    assert site("PUT", "/alerts/rules/-bad", _RULE).status_code == 400


def test_the_setup_of_the_document_creates_a_rule_with_its_channels(site: Site) -> None:
    answer = site("POST", "/alerts/setup", {"name": "too-many", **_RULE})

    assert answer.status_code == 200
    assert (answer.json()["name"], answer.json()["channels"]) == ("too-many", ["mailto:ops@example.com"])


def test_alerts_are_listed_with_their_status(site: Site) -> None:
    async def add(store: JobStore, history: Any) -> None:
        del store
        for subject, state in (("a", AlertState.RESOLVED), ("b", AlertState.FIRING), ("c", AlertState.PENDING)):
            alert = Alert(tenant="acme", rule="r", subject=subject, state=state, since=1, value=2, changed=3)
            await history.alerts.commit([alert], [])

    _use_store(site, add)

    whole = site("GET", "/alerts").json()
    firing = site("GET", "/alerts?states=firing").json()

    assert [each["subject"] for each in whole["items"]] == ["b", "c", "a"]
    assert (whole["firing"], whole["pending"]) == (1, 1)
    assert [each["subject"] for each in firing["items"]] == ["b"]
    assert site("GET", "/alerts", by="other-admin").json()["items"] == []
    assert site("GET", "/alerts?states=loud").status_code == 400


def test_a_silence_is_created_shown_and_ended(site: Site) -> None:
    test_alerts_are_listed_with_their_status(site)

    made = site("POST", "/alerts/silences", {"seconds": 60, "subject": "b", "note": "known"})

    assert made.status_code == 201
    assert [each["is_silenced"] for each in site("GET", "/alerts").json()["items"]] == [True, False, False]
    assert site("GET", "/alerts/silences", by="other-admin").json()["items"] == []
    silence = made.json()["id"]
    assert site("DELETE", f"/alerts/silences/{silence}", by="other-admin").status_code == 404
    assert site("DELETE", f"/alerts/silences/{silence}").status_code == 200
    assert site("DELETE", f"/alerts/silences/{silence}").json()["code"] == "silence_not_found"


def test_a_test_of_a_rule_notifies_each_of_its_channels(site: Site) -> None:
    site("PUT", "/alerts/rules/r", {**_RULE, "channels": ["mailto:a@b.c", "https://b.c/d"]})

    answer = site("POST", "/alerts/rules/r/test")

    assert answer.status_code == 202
    notices = site("GET", "/alerts/notices").json()["items"]
    assert sorted(each["channel"] for each in notices) == ["https://b.c", "mailto:a@b.c"]
    assert notices[0]["changes"] == [{"kind": "test", "subject": "test"}]
    assert site("GET", "/alerts/notices", by="other-admin").json()["items"] == []
    assert site("POST", "/alerts/rules/absent/test").status_code == 404


def test_only_operators_see_secrets_in_webhook_urls(site: Site) -> None:
    site("PUT", "/alerts/rules/r", {**_RULE, "channels": ["https://b.c/secret"]})
    site("POST", "/alerts/rules/r/test")

    assert site("GET", "/alerts/rules", by="acme-operator").json()["items"][0]["channels"] == ["https://b.c/secret"]
    for path in ("/alerts/rules", "/alerts/notices"):
        for caller in ("acme-viewer", "all-viewer"):
            answer = site("GET", path, by=caller)
            assert "https://b.c" in answer.text
            assert "secret" not in answer.text
    (entry,) = site("GET", "/audit?action=alert.put").json()["items"]
    assert entry["after"]["channels"] == ["https://b.c"]


def test_a_channel_gets_one_test_a_minute(site: Site) -> None:
    site("PUT", "/alerts/rules/r", _RULE)

    answers = [site("POST", "/alerts/rules/r/test").status_code for _ in range(5)]

    minutes = [each["at"][:16] for each in site("GET", "/alerts/notices").json()["items"]]
    assert answers == [202] * 5
    assert len(minutes) == len(set(minutes))
    tests = site("GET", "/audit?action=alert.test").json()["items"]
    assert [(each["user"], each["subject"]) for each in tests] == [("acme-admin", "r")] * 5


def test_notices_of_a_busy_tenant_do_not_hide_those_of_others(site: Site) -> None:
    site("PUT", "/alerts/rules/old", _RULE, by="other-admin")
    site("POST", "/alerts/rules/old/test", by="other-admin")
    site("PUT", "/alerts/rules/r", {**_RULE, "channels": [f"mailto:a{number}@b.c" for number in range(12)]})
    site("POST", "/alerts/rules/r/test")

    (own,) = site("GET", "/alerts/notices?limit=1", by="other-admin").json()["items"]

    assert (own["rule"], own["tenant"]) == ("old", "other")


def test_the_metrics_available_to_rules_are_listed(site: Site) -> None:
    assert "failure_rate" in site("GET", "/alerts/metrics").json()["items"]
