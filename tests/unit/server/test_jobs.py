"""Jobs over HTTP."""

import asyncio
from typing import Any

import pytest
from msgspec import Raw, msgpack
from msgspec.structs import replace

from taskmq.contracts.jobs import DispatchedJob
from taskmq.contracts.stores import ResultRecord
from taskmq.model.envelope import MSGPACK
from taskmq.model.history.journals import RunProgress, SaveRequest
from taskmq.model.history.suspensions import SUSPENDED, describe_wait, encode_wait
from taskmq.model.jobs.pools import pool_group, preemption_reason
from taskmq.model.jobs.reports import PREEMPTED, Report
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from taskmq.model.units import LAST_INSTANT
from taskmq.model.values.light_values import REFERENCE, reference_to
from taskmq.testing.job_store_suite.driver import JobDriver, report
from tests.unit.server.kit import DOCUMENT, Site


def test_each_job_of_a_batch_has_an_outcome(site: Site) -> None:
    bodies: list[dict[str, Any]] = [
        {"job_type": "data_processing", "payload": {"key": "a"}},
        {"job_type": "data_processing", "payload": {"colour": "red"}},
        {"job_type": "data_procesing"},
        {"payload": {}},
        {**DOCUMENT, "job_id": "mine"},
    ]

    answer = site("POST", "/jobs", bodies)

    assert answer.status_code == 200
    found = answer.json()
    assert (found["submitted"], found["refused"]) == (2, 3)
    codes = [item.get("problem", {}).get("code") for item in found["items"]]
    assert codes == [None, "invalid_arguments", "unknown_task", "invalid_field", None]
    assert found["items"][4]["job_id"] == "mine"


def test_at_most_a_thousand_jobs_are_submitted_at_once(site: Site) -> None:
    one = {"job_type": "data_processing", "schedule_time": "2099-01-01T00:00:00Z"}

    assert site("POST", "/jobs", [one] * 1_000).json()["submitted"] == 1_000

    assert site("POST", "/jobs", [one] * 1_001).status_code == 400
    assert site("POST", "/jobs", []).status_code == 400
    assert site("GET", "/jobs/count").json() == {"count": 1_000, "is_exact": True}


def test_a_state_matches_only_itself_and_a_status_uses_the_terms_of_the_document(site: Site) -> None:
    site.submit(job_id="ready", schedule_time=None)
    site.submit(job_id="later", schedule_time="2099-01-01T00:00:00Z")

    assert site.ids("?status=queued") == ["later", "ready"]
    assert site.ids("?state=queued") == site.ids("?filter=state:queued") == ["ready"]
    assert site.ids("?state=queued,scheduled") == ["later", "ready"]
    assert site.ids("?state=scheduled&status=queued") == ["later"]
    assert site.ids("?state=running&status=queued") == []
    assert site("GET", "/jobs?state=running&status=queued&cursor=").json()["items"] == []
    refused = site("GET", "/jobs?state=completed").json()
    assert [error["field"] for error in refused["errors"]] == ["state"]


def test_several_filters_are_counted_in_one_request(site: Site) -> None:
    for name, when in (("one", "2099-01-01T00:00:00Z"), ("two", "2099-01-01T00:00:00Z"), ("three", None)):
        site.submit(job_id=name, schedule_time=when)

    counted = site("GET", "/jobs/counts?filter=status:scheduled&filter=status:queued&filter=").json()["items"]

    assert [(one["filter"], one["count"]) for one in counted] == [
        ("status:scheduled", 2),
        ("status:queued", 1),
        ("", 3),
    ]
    assert site("GET", "/jobs/counts").status_code == 400
    assert site("GET", f"/jobs/counts?{'&'.join(['filter='] * 21)}").status_code == 400
    assert site("GET", "/jobs/counts?filter=status:failed&filter=stauts:failed").json()["code"] == "invalid_filter"


def test_cached_counts_belong_to_one_tenant(site: Site) -> None:
    site.submit()

    counted = [
        site("GET", "/jobs/counts?filter=&max_age=60", by=by).json()["items"][0]["count"]
        for by in ("acme-admin", "other-admin", "all-viewer", "acme-admin")
    ]

    assert counted == [1, 0, 1, 1]


def test_an_idempotency_key_makes_one_job_of_two_requests(site: Site) -> None:
    body, headers = {"job_type": "data_processing"}, {"Idempotency-Key": "k1"}

    first = site("POST", "/jobs", body, headers=headers)
    again = site("POST", "/jobs", body, headers=headers)
    many = [site("POST", "/jobs", [body, body], headers={"Idempotency-Key": "k2"}).json() for _ in range(2)]

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert [item["job_id"] for item in many[0]["items"]] == ["k2:0", "k2:1"]
    assert [item["id"] for item in many[0]["items"]] == [item["id"] for item in many[1]["items"]]
    assert site("POST", "/jobs", {**body, "job_id": "x"}, headers=headers).status_code == 400


def test_a_list_continues_page_by_page(site: Site) -> None:
    for number in range(5):
        site.submit(job_id=f"j{number}")

    first = site("GET", "/jobs?limit=2")
    link = first.headers["link"].partition(">")[0].removeprefix("</api/v1")
    second = site("GET", link).json()
    third = site("GET", f"/jobs?limit=2&cursor={second['next']}").json()

    assert [job["job_id"] for job in first.json()] == ["j4", "j3"]
    assert [job["job_id"] for job in second["items"]] == ["j2", "j1"]
    assert ([job["job_id"] for job in third["items"]], third["next"]) == (["j0"], None)
    assert site("GET", "/jobs?cursor=").json()["items"][0]["job_id"] == "j4"
    assert site("GET", "/jobs?cursor=nonsense").json()["code"] == "invalid_option"


def test_an_invalid_filter_is_refused_with_its_column(site: Site) -> None:
    answer = site("GET", "/jobs", params={"filter": "queue:work stats:failed"})

    assert (answer.status_code, answer.json()["code"], answer.json()["column"]) == (400, "invalid_filter", 12)
    assert "'status'" in answer.json()["detail"]


def test_a_filter_and_a_parameter_must_not_repeat_each_other(site: Site) -> None:
    assert site("GET", "/jobs?filter=status:failed&status=failed").status_code == 400


def test_a_change_of_an_outdated_version_is_refused(site: Site) -> None:
    site.submit()

    stale = site("PATCH", "/jobs/order-17", {"priority": 1}, headers={"If-Match": '"7"'})
    fresh = site("PATCH", "/jobs/order-17", {"priority": 1}, headers={"If-Match": '"1"'})

    assert (stale.status_code, stale.json()["code"], stale.json()["version"]) == (412, "version_mismatch", 1)
    assert (fresh.status_code, fresh.headers["etag"]) == (200, '"2"')
    assert site("DELETE", "/jobs/order-17", headers={"If-Match": '"1"'}).status_code == 412
    assert site("POST", "/jobs/order-17/hold", headers={"If-Match": '"1"'}).status_code == 412
    assert site("POST", "/jobs/order-17/retry", headers={"If-Match": '"1"'}).status_code == 412
    assert site("PATCH", "/jobs/order-17", {"priority": 1}, headers={"If-Match": "abc"}).status_code == 400


def test_an_unchanged_job_is_not_sent_again(site: Site) -> None:
    site.submit()
    etag = site("GET", "/jobs/order-17").headers["etag"]

    assert site("GET", "/jobs/order-17", headers={"If-None-Match": etag}).status_code == 304
    assert site("GET", "/jobs/order-17", headers={"If-None-Match": '"9"'}).status_code == 200


@pytest.mark.parametrize("query", ["expand=logs", "fields=logs", "fields=job_id,payload"])
def test_the_data_beside_a_job_is_sent_again_with_the_same_etag(site: Site, query: str) -> None:
    site.submit()
    etag = site("GET", "/jobs/order-17").headers["etag"]

    assert site("GET", f"/jobs/order-17?{query}", headers={"If-None-Match": etag}).status_code == 200


def test_a_job_is_held_released_retried_and_cloned(site: Site) -> None:
    site.submit()

    held = site("POST", "/jobs/order-17/hold", {"note": "wait"})
    reasons = site("GET", "/jobs/order-17/explain").json()["reasons"]
    released = site("POST", "/jobs/order-17/release")
    retried = site("POST", "/jobs/order-17/retry", {"note": "now"})
    cloned = site("POST", "/jobs/order-17/clone", {"job_id": "again"})

    assert (held.json()["status"], held.json()["state"]) == ("held", "held")
    assert "it is held by an operator" in reasons[0]
    assert (released.json()["status"], released.json()["state"]) == ("released", "scheduled")
    assert (retried.status_code, retried.json()["state"]) == (200, "queued")
    assert (cloned.status_code, cloned.json()["job_id"]) == (201, "again")
    assert site("GET", "/jobs/again").json()["retry_of"] == held.json()["id"]
    kinds = [(entry["kind"], entry["by"]) for entry in site("GET", "/jobs/order-17/history").json()["items"]]
    assert kinds == [("hold", "acme-admin"), ("release", "acme-admin"), ("retry", "acme-admin")]
    assert site("GET", "/jobs/order-17/attempts").json() == {"items": []}


def test_changes_of_a_job_are_audited_without_its_arguments(site: Site) -> None:
    site.submit()
    headers = {"X-Request-ID": "r-1"}
    site("PATCH", "/jobs/order-17", {"payload": {"key": "secret"}, "note": "asked by phone"}, headers=headers)
    site("DELETE", "/jobs/order-17", headers={"If-Match": '"9"'})
    site("DELETE", "/jobs/order-17")

    last, first = site("GET", "/audit?action=job.").json()["items"]

    assert (first["action"], first["user"], first["tenant"], first["note"], first["request_id"]) == (
        "job.change",
        "acme-admin",
        "acme",
        "asked by phone",
        "r-1",
    )
    assert (first["before"], first["after"]) == (
        {"state": "scheduled", "version": 1},
        {"state": "scheduled", "changed": "arguments"},
    )
    assert (last["action"], last["after"]) == ("job.cancel", {"state": "cancelled"})


def test_an_ended_job_is_retried_as_a_new_one(site: Site) -> None:
    site.submit()
    site("DELETE", "/jobs/order-17")

    first = site("POST", "/jobs/order-17/retry", {"mode": "new"}, headers={"Idempotency-Key": "second"})
    again = site("POST", "/jobs/order-17/retry", {"mode": "new"}, headers={"Idempotency-Key": "second"})

    assert (first.status_code, first.json()["job_id"]) == (201, "second")
    assert again.json()["id"] == first.json()["id"]


def test_a_clone_belongs_to_its_submitter_and_a_retry_to_the_first_owner(site: Site) -> None:
    site.submit()
    site("DELETE", "/jobs/order-17")

    clone = site("POST", "/jobs/order-17/clone", by="acme-submitter").json()["id"]
    again = site("POST", "/jobs/order-17/retry", by="acme-submitter").json()["id"]

    assert site("GET", f"/jobs/{clone}").json()["owner"] == "acme-submitter"
    assert site("GET", f"/jobs/{again}").json()["owner"] == "acme-admin"


def test_an_ended_job_is_not_changed(site: Site) -> None:
    site.submit()
    site("DELETE", "/jobs/order-17")

    answer = site("PUT", "/jobs/order-17", {"priority": "low"})

    assert (answer.status_code, answer.json()["state"]) == (409, "cancelled")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"job_tpye": "data_processing"}, "job_tpye"),
        ({"job_type": "data_processing", "priority": "urgent"}, "priority"),
        ({"job_type": "data_processing", "priority": 10}, "priority"),
        ({"job_type": "data_processing", "schedule_time": "2099-01-01T00:00:00"}, "schedule_time"),
        ({"job_type": "data_processing", "payload": [1]}, "payload"),
        ({"job_type": "data_processing", "task": "report"}, "task"),
        ({"job_type": "data_processing", "job_id": ""}, "job_id"),
        ({"job_type": "data_processing", "job_id": "a\0b"}, "job_id"),
        ({"job_type": "data_processing", "delay": "1h", "schedule_time": "2099-01-01T00:00:00Z"}, "delay"),
        ({"payload": {}}, "job_type"),
    ],
)
def test_an_invalid_field_is_named(site: Site, body: object, field: str) -> None:
    answer = site("POST", "/jobs", body)

    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert site.ids() == []


def test_a_job_waits_in_the_queue_of_its_task(site: Site) -> None:
    refused = site("POST", "/jobs", {"job_type": "data_processing", "queue": "billing"})

    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_option")
    assert site("POST", "/jobs", {"job_type": "data_processing", "queue": "work"}).status_code == 201


@pytest.mark.parametrize(
    ("body", "field", "suggestion"),
    [
        ({"priority": "normal"}, "priority", "known: high, medium, low"),
        ({"priority": "mediun"}, "priority", "did you mean 'medium'?"),
        (
            {"depends_on": [{"job_id": "first", "condition": "done"}]},
            "depends_on",
            "known: succeeded, ended, failed",
        ),
    ],
)
def test_an_invalid_word_is_refused_with_the_valid_ones(
    site: Site, body: dict[str, Any], field: str, suggestion: str
) -> None:
    (error,) = site("POST", "/jobs", {"job_type": "data_processing", **body}).json()["errors"]

    assert error["field"].startswith(field)
    assert error["suggestion"] == suggestion


@pytest.mark.parametrize("instant", ["2027-01-31T09:00:00", "2027-01-31T09:00Z", "2027-01-31", "tomorrow"])
def test_an_incomplete_instant_is_refused_with_an_example(site: Site, instant: str) -> None:
    (refused,) = site("POST", "/jobs", {"job_type": "data_processing", "schedule_time": instant}).json()["errors"]

    assert refused["field"].rpartition(".")[2] == "schedule_time"
    assert refused["message"].endswith("time zone, such as 2027-01-31T08:00:00Z or 2027-01-31T09:00:00+01:00")


@pytest.mark.parametrize(
    "path",
    ["/audit?since=", "/jobs?start_time=", "/failures?until=", "/logs?since=", "/schedules/nightly/next?after="],
)
def test_a_queried_instant_without_a_zone_is_refused(site: Site, path: str) -> None:
    refused = site("GET", f"{path}2027-01-31T09:00:00", by="all-admin")

    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_field")
    assert "2027-01-31T09:00:00 must be a timestamp with date, time with seconds, and time zone" in refused.text


def test_an_unknown_field_or_parameter_is_refused_with_a_suggestion(site: Site) -> None:
    field = site("POST", "/jobs", {"job_tpye": "data_processing"}).json()["errors"][0]
    parameter = site("GET", "/jobs?limt=5").json()["errors"][0]

    assert field["suggestion"] == "did you mean 'job_type'?"
    assert parameter["suggestion"] == "did you mean 'limit'?"


def test_a_caller_with_access_to_all_tenants_learns_which_have_a_job_of_that_name(site: Site) -> None:
    site.submit()
    site.submit(by="other-admin")

    unnamed = site("GET", "/jobs/order-17", by="all-viewer")
    changed = site("POST", "/jobs/order-17/hold", by="all-operator")

    assert (unnamed.status_code, changed.status_code) == (404, 404)
    assert "; there is '@other:order-17' and '@acme:order-17': give the full name" in unnamed.json()["detail"]
    assert changed.json()["detail"] == unnamed.json()["detail"]
    assert site("GET", "/jobs/order-18", by="all-viewer").json()["detail"].endswith("is no longer kept")


def test_a_tenant_sees_its_own_name_of_a_job_and_nothing_of_others(site: Site) -> None:
    site.submit(job_id="mine")
    site.submit(by="other-admin", job_id="theirs")

    whole = site("GET", "/jobs/@acme:mine").json()["detail"]
    foreign = [site("GET", f"/jobs/{name}").json()["detail"] for name in ("theirs", "@other:theirs", "@other:none")]

    assert whole.endswith("; leave out the tenant: there is 'mine'")
    assert foreign == [f"no job is called {name!r}" for name in ("theirs", "@other:theirs", "@other:none")]


@pytest.mark.parametrize(("by", "is_told"), [("acme-admin", True), ("all-viewer", False), ("other-admin", False)])
def test_a_broker_job_is_reported_as_missing_from_the_store(site: Site, by: str, is_told: bool) -> None:
    async def keep() -> None:
        async with site.app:
            results = site.app.sessions.current().stores.results
            assert results is not None
            ended = ResultRecord(job_id="@acme:pushed", task="push", state=JobState.SUCCEEDED, attempt=1, finished=1)
            await results.put(ended, ttl=60)

    asyncio.run(keep())

    detail = site("GET", "/jobs/pushed", by=by).json()["detail"]
    whole = site("GET", "/jobs/@acme:pushed", by="all-viewer").json()["detail"]
    unnamed = site("GET", "/jobs/@acme:pushed?tenant=", by="all-viewer").json()["detail"]

    assert detail.endswith("it was sent to the broker and is not in the store; see /failures?job_id=") is is_told
    assert "it was sent to the broker" in whole
    assert "it was sent to the broker" not in unnamed


def test_an_unknown_task_is_refused_with_a_suggestion(site: Site) -> None:
    answer = site("POST", "/jobs", {"job_type": "data_procesing"})

    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_task")
    assert "'data_processing'" in answer.json()["detail"]


def test_the_groups_of_jobs_can_be_counted_and_selected(site: Site) -> None:
    site.submit(labels={"team": "web"}, description="an order")
    site.submit(job_id="b", held=True)

    assert site.ids("?filter=label.team:web") == ["order-17"]
    assert site("GET", "/jobs/count?filter=status:held").json()["count"] == 1
    assert site("GET", "/jobs?fields=job_id,owner&limit=1").json() == [{"job_id": "b", "owner": "acme-admin"}]
    assert site("GET", "/jobs/b?fields=job_id,payload,retries").json() == {
        "job_id": "b",
        "payload": {"key": "value"},
        "retries": 0,
    }
    assert site("GET", "/jobs/b?fields=colour").status_code == 400
    assert site("GET", "/jobs/b?expand=colour").status_code == 400
    assert site("GET", "/jobs?status=colour").status_code == 400


def test_running_an_ended_job_again_is_audited(site: Site) -> None:
    site.submit()
    site("DELETE", "/jobs/order-17")
    job = site("GET", "/jobs/order-17").json()["id"]

    site("POST", "/jobs/order-17/retry", {"note": "once more", "mode": "new"})
    site("POST", "/jobs/order-17/clone", {"job_id": "copy"})

    entries = site("GET", "/audit?action=job.").json()["items"]
    assert [(entry["action"], entry["subject"], entry["user"], entry["note"]) for entry in entries] == [
        ("job.clone", job, "acme-admin", ""),
        ("job.retry", job, "acme-admin", "once more"),
        ("job.cancel", job, "acme-admin", ""),
    ]


def test_a_job_is_retried_once_unless_another_run_is_requested(site: Site) -> None:
    site.submit()
    site("DELETE", "/jobs/order-17")

    made = site("POST", "/jobs/order-17/retry", {"mode": "new"})
    refused = site("POST", "/jobs/order-17/retry", {"mode": "new"})
    again = site("POST", "/jobs/order-17/retry", {"mode": "new", "again": True})

    assert (made.status_code, refused.status_code, again.status_code) == (201, 409, 201)
    assert made.json()["id"] in refused.json()["detail"]
    assert site("GET", "/jobs/order-17").json()["retried_as"] == again.json()["id"]
    assert site("GET", f"/jobs/{again.json()['id']}").json()["retry_of"] == site("GET", "/jobs/order-17").json()["id"]
    assert site("GET", "/jobs/count?filter=status:cancelled").json()["count"] == 0
    assert site("GET", "/jobs/count?filter=status:cancelled+retried:yes").json()["count"] == 1


def test_a_job_with_an_id_of_its_submitter_keeps_it(site: Site) -> None:
    site.submit()
    site("DELETE", "/jobs/order-17")
    job = site("GET", "/jobs/order-17").json()["id"]

    made = site("POST", "/jobs/order-17/retry", {"note": "once more"})

    assert (made.status_code, made.json()["id"], made.json()["state"]) == (200, job, "queued")
    (*_, entry) = site("GET", "/jobs/order-17/history").json()["items"]
    assert (entry["kind"], entry["by"], entry["note"]) == ("retry", "acme-admin", "once more")
    assert site("GET", "/audit?action=job.retry").json()["items"][0]["after"] == {"mode": "resume"}
    assert site("GET", "/jobs/count").json()["count"] == 1
    assert site("POST", "/jobs/order-17/retry", {"mode": "sideways"}).status_code == 400


def test_repeating_a_retry_request_returns_the_same_retry(site: Site) -> None:
    site.submit()
    site("DELETE", "/jobs/order-17")
    version = site("GET", "/jobs/order-17").headers["ETag"]
    headers = {"Idempotency-Key": "once", "If-Match": version}

    first, second = (site("POST", "/jobs/order-17/retry", {"mode": "new"}, headers=headers) for _ in range(2))

    assert (first.status_code, first.json()) == (second.status_code, second.json())
    assert site("GET", "/jobs/count").json()["count"] == 2


@pytest.mark.parametrize("has_version", [False, True])
def test_repeating_a_release_request_releases_the_job_once(site: Site, has_version: bool) -> None:
    site.submit()
    site("DELETE", "/jobs/order-17")
    headers = {"Idempotency-Key": "once"}
    if has_version:
        headers["If-Match"] = site("GET", "/jobs/order-17").headers["ETag"]

    first = site("POST", "/jobs/order-17/retry", headers=headers)
    # Its end precedes the repeated request, whose first answer was lost.
    site("DELETE", "/jobs/order-17")
    again = site("POST", "/jobs/order-17/retry", headers=headers)
    other = site("POST", "/jobs/order-17/retry", headers={"Idempotency-Key": "twice"})

    states = [answer.json()["state"] for answer in (first, again, other)]
    assert states == ["queued", "cancelled", "queued"]
    assert {answer.status_code for answer in (first, again, other)} == {200}


def test_a_release_request_for_a_waiting_job_does_not_release_it_later(site: Site) -> None:
    site.submit()
    headers = {"Idempotency-Key": "once"}

    for _ in range(2):
        assert site("POST", "/jobs/order-17/retry", headers=headers).json()["state"] == "queued"
    site("DELETE", "/jobs/order-17")
    again = site("POST", "/jobs/order-17/retry", {"mode": "new"}, headers=headers)

    assert (again.status_code, again.json()["state"]) == (200, "cancelled")
    assert site("GET", "/jobs/count").json()["count"] == 1
    assert len(site("GET", "/audit?action=job.retry").json()["items"]) == 1


def test_a_job_is_repeated_with_other_arguments_and_priority(site: Site) -> None:
    site.submit(priority="low", labels={"team": "web"})
    changes = {"payload": {"key": "secret"}, "priority": 9, "job_id": "edited"}

    cloned = site("POST", "/jobs/order-17/clone", changes)
    again = site("POST", "/jobs/order-17/clone", changes)
    other = site("POST", "/jobs/order-17/clone", {**changes, "payload": {"key": "another"}})

    assert (cloned.status_code, again.json()["id"]) == (201, cloned.json()["id"])
    assert (other.status_code, other.json()["code"]) == (409, "job_conflict")
    made = site("GET", "/jobs/edited?expand=payload").json()
    first = site("GET", "/jobs/order-17?expand=payload").json()
    assert (made["payload"], made["priority"], made["labels"]) == ({"key": "secret"}, 9, {"team": "web"})
    assert (made["retry_of"], first["payload"], first["priority"]) == (first["id"], {"key": "value"}, 1)
    entries = site("GET", "/audit?action=job.clone").json()["items"]
    assert entries[-1]["after"] == {"new_id": "edited", "changed": "kwargs, priority"}


@pytest.mark.parametrize(
    ("body", "field"),
    [({"payload": {}, "kwargs": {}}, "kwargs"), ({"priority": 10}, "priority"), ({"args": {}}, "args")],
)
def test_an_error_in_a_clone_is_named(site: Site, body: dict[str, Any], field: str) -> None:
    site.submit()

    answer = site("POST", "/jobs/order-17/clone", body)

    assert (answer.status_code, [one["field"] for one in answer.json()["errors"]]) == (400, [field])


def test_a_clone_with_mismatching_arguments_is_refused(site: Site) -> None:
    site.submit()

    answer = site("POST", "/jobs/order-17/clone", {"payload": {"colour": "red"}})

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_arguments")
    assert site.ids() == ["order-17"]


def test_a_tenant_does_not_learn_for_which_other_one_its_run_was_preempted(site: Site) -> None:
    reason = preemption_reason(pool_group("other"))

    async def be_asked() -> DispatchedJob:
        driver = JobDriver(site.app.sessions.store())
        job = await driver.dispatch_new(tenant="acme")
        await driver.expect_update(
            await driver.expect_accepted(job, "started"), kind="preempt_requested", note=reason
        )
        return job

    async def give_way(job: DispatchedJob) -> None:
        why = ErrorRecord(type_name=PREEMPTED, message=reason)
        await JobDriver(site.app.sessions.store()).expect_accepted(job, "interrupted", error=why)

    def read(by: str) -> str:
        paths = (f"/jobs/{job.id}/explain", f"/jobs/{job.id}/history", f"/jobs/{job.id}?expand=logs")
        return "".join(site("GET", path, by=by).text for path in paths)

    with site.client.portal() as portal:
        job = portal.call(be_asked)
        asked, shown = read("acme-admin"), read("all-viewer")
        portal.call(give_way, job)
        gone = read("acme-admin")

    assert (asked.count("preempted by another pool"), gone.count("preempted by another pool")) == (4, 6)
    assert 'other"' not in asked + gone
    assert "pool other" not in asked + gone
    assert shown.count("preempted by pool other") == 4


def _suspend(site: Site, form: dict[str, Any]) -> str:
    """Create a job of acme that waits for the signal `go`; return the store's id."""

    async def suspend() -> str:
        driver = JobDriver(site.app.sessions.store())
        job = await driver.dispatch_new(tenant="acme")
        begin = SaveRequest(reply="worker.saved.w1", number=1, run="a")
        (begun,) = await driver.store.journals.save([report(job, "saving", saving=begin)])
        wait = Raw(encode_wait(LAST_INSTANT, form))
        save = replace(begin, number=2, fence=begun.fence, name="wait 1 go", value=wait)
        await driver.store.journals.save([report(job, "saving", saving=save)])
        why = ErrorRecord(type_name=SUSPENDED, message=describe_wait("go", LAST_INSTANT))
        await driver.expect_accepted(job, "snoozed", delay=1, until=LAST_INSTANT, error=why, saves=1)
        return job.id

    with site.client.portal() as portal:
        return portal.call(suspend)


def test_a_signal_has_to_fit_the_form_of_the_call_that_waits_for_it(site: Site) -> None:
    job = _suspend(site, {"type": "integer"})

    wrong = site("POST", f"/jobs/{job}/signals", {"signal": "go", "value": "7"})
    right = site("POST", f"/jobs/{job}/signals", {"signal": "go", "value": 7})

    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_arguments")
    assert "signal 'go' does not fit its form" in wrong.json()["detail"]
    assert right.status_code == 200


def _succeed_with_large_value(site: Site, **damage: str) -> str:
    """Create a job of acme with a large result in a file store and a wrong reference to it; return the store's id."""

    async def succeed() -> str:
        driver = JobDriver(site.app.sessions.store())
        large = site.app.sessions.current().large_values
        assert large is not None
        job = await driver.dispatch_new(tenant="acme")
        blob = replace(await large.keep(job.id, b"1234", ttl=60), **damage)
        await driver.expect_accepted(
            job, "succeeded", content_type=REFERENCE, result=Raw(reference_to("application/json", blob))
        )
        return job.id

    with site.client.portal() as portal:
        return portal.call(succeed)


@pytest.mark.parametrize(
    ("damage", "code"), [({"name": "lost"}, "result_expired"), ({"sha256": "0" * 64}, "result_damaged")]
)
def test_a_job_with_a_lost_large_value_is_shown_with_a_problem(site: Site, damage: dict[str, str], code: str) -> None:
    job = _succeed_with_large_value(site, **damage)

    answer = site("GET", f"/jobs/{job}?expand=payload,result,progress")

    assert answer.status_code == 200
    found = answer.json()
    assert (found["state"], found["result"], found["result_problem"]["code"]) == ("succeeded", None, code)
    assert job in found["result_problem"]["detail"] or code == "result_damaged"
    chosen = site("GET", f"/jobs/{job}?fields=result,result_problem").json()
    assert chosen == {"result": None, "result_problem": found["result_problem"]}
    alone = site("GET", f"/jobs/{job}?fields=state,result")
    assert (alone.status_code, alone.json()["code"]) == (410, code)


def test_a_job_with_a_value_without_json_form_is_shown_with_a_problem(site: Site) -> None:
    async def succeed() -> str:
        driver = JobDriver(site.app.sessions.store())
        job = await driver.dispatch_new(tenant="acme")
        value = Raw(msgpack.encode({"a": float("nan")}))
        await driver.expect_accepted(job, "succeeded", content_type=MSGPACK, result=value)
        return job.id

    with site.client.portal() as portal:
        job = portal.call(succeed)

    found = site("GET", f"/jobs/{job}?expand=result").json()

    assert (found["state"], found["result"]) == ("succeeded", None)
    assert "JSON has no NaN" in found["result_problem"]["detail"]


def test_a_job_with_a_readable_value_has_no_problem(site: Site) -> None:
    job = _succeed_with_large_value(site)

    found = site("GET", f"/jobs/{job}?expand=result").json()

    assert (found["result"], found["result_problem"]) == (1234, None)


def _say_progress(site: Site, *, key: str | None = None, tenant: str = "acme", **fields: Any) -> str:
    """Create a running job of acme with progress; return the store's id."""

    async def say() -> str:
        store = site.app.sessions.store()
        job = await JobDriver(store).make(JobState.RUNNING, tenant=tenant, key=key)
        progress = RunProgress(updated=2_000, **fields)
        await store.journals.report(
            [Report(id=job.id, token=job.token, kind="progress", started=1_000, progress=progress)]
        )
        return job.id

    with site.client.portal() as portal:
        return portal.call(say)


def test_a_list_of_jobs_includes_progress_on_request(site: Site) -> None:
    site.submit()
    known, unknown = _say_progress(site, done=3, total=10, note="rows"), _say_progress(site, done=0.5)
    told = {
        "done": 3.0, "total": 10.0, "note": "rows", "attempt": 1, "updated_at": "1970-01-01T00:00:02.000Z",
        "state": "running",
    }  # fmt: skip

    listed = {one["id"]: one["progress"] for one in site("GET", "/jobs?expand=progress").json()}
    page = site("GET", "/jobs?cursor=&fields=job_id,progress&filter=status:running").json()["items"]

    assert (listed.pop(known), listed.pop(unknown)["total"], list(listed.values())) == (told, None, [None])
    assert {one["job_id"]: one["progress"]["done"] for one in page} == {known: 3.0, unknown: 0.5}
    assert site("GET", f"/jobs/{known}?expand=progress").json()["progress"] == told
    assert site("GET", "/jobs/order-17?expand=progress").json()["progress"] is None
    assert all("progress" not in one for one in site("GET", "/jobs").json())
    assert site("GET", "/jobs?expand=progress", by="other-admin").json() == []
    refused = site("GET", "/jobs?expand=result")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "expand")


@pytest.mark.parametrize("tenant", ["acme", ""])
def test_progress_of_a_job_with_an_id_of_its_submitter_is_shown(site: Site, tenant: str) -> None:
    job = _say_progress(site, key="archive-2026", tenant=tenant, done=405, total=1_200)
    by = "acme-admin" if tenant else "all-admin"

    (listed,) = site("GET", "/jobs?expand=progress&filter=status:running", by=by).json()
    one, same = (site("GET", f"/jobs/{name}?expand=progress", by=by).json() for name in ("archive-2026", job))

    assert (listed["id"], listed["progress"]["done"]) == (job, 405)
    assert one["progress"] == same["progress"] == listed["progress"]


def test_progress_of_stored_jobs_is_shown_while_the_state_is_unavailable(site: Site) -> None:
    job = _say_progress(site, done=3)

    with site.client.portal() as portal:
        portal.call(_close_state, site)
    listed = site("GET", "/jobs?expand=progress")

    assert (listed.status_code, [(one["id"], one["progress"]["done"]) for one in listed.json()]) == (200, [(job, 3)])


async def _close_state(site: Site) -> None:
    state = site.app.sessions.current().state
    assert state is not None
    await state.aclose()


@pytest.mark.parametrize("job_id", ["a\nERROR forged", "\x1b]0;PWN\x07", "\x9b2J", "\u202etxt.exe"])
def test_an_id_with_control_characters_is_refused(site: Site, job_id: str) -> None:
    refused = site("POST", "/jobs", {**DOCUMENT, "job_id": job_id})

    assert refused.status_code == 400
    assert "job_id" in refused.json()["detail"]


@pytest.mark.parametrize("content_type", ["", "application/json", "application/msgpack"])
def test_a_successful_job_without_a_result_can_be_read(site: Site, content_type: str) -> None:
    async def succeed() -> str:
        driver = JobDriver(site.app.sessions.store())
        job = await driver.dispatch_new(tenant="acme")
        await driver.expect_accepted(job, "succeeded", content_type=content_type)
        return job.id

    with site.client.portal() as portal:
        job = portal.call(succeed)

    shown = site("GET", f"/jobs/{job}?expand=payload,result,logs,retries,progress")
    assert (shown.status_code, shown.json()["state"], shown.json()["result"]) == (200, "succeeded", None)
