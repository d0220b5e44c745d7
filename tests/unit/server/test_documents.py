"""The calls of document 001, with exactly its bodies."""

from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.driver import HOUR, JobDriver
from tests.unit.server.kit import DOCUMENT, Site


def test_a_job_of_the_document_is_submitted_and_returned_in_its_terms(site: Site) -> None:
    answer = site("POST", "/jobs", DOCUMENT)

    assert answer.status_code == 201
    assert answer.json()["status"] == "submitted"
    assert answer.json()["job_id"] == "order-17"
    assert answer.headers["location"] == f"/api/v1/jobs/{answer.json()['id']}"


def test_the_same_job_again_is_accepted_and_other_content_is_a_conflict(site: Site) -> None:
    first = site("POST", "/jobs", DOCUMENT)
    again = site("POST", "/jobs", DOCUMENT)
    other = site("POST", "/jobs", {**DOCUMENT, "payload": {"key": "another"}})

    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 409)
    assert again.json() == {**first.json(), "is_new": False}
    assert (other.json()["code"], other.json()["state"]) == ("job_conflict", "scheduled")


def test_a_job_is_updated_with_the_body_of_the_document(site: Site) -> None:
    site.submit()
    body = {"schedule_time": "2099-02-01T00:00:00Z", "priority": "low", "payload": {"key": "updated_value"}}

    answer = site("PUT", "/jobs/order-17", body)

    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["job_id"]) == ("updated", "order-17")
    after = site("GET", "/jobs/order-17?expand=payload").json()
    assert (after["schedule_time"], after["payload"]) == ("2099-02-01T00:00:00.000Z", {"key": "updated_value"})


def test_fields_may_be_omitted_in_an_update(site: Site) -> None:
    site.submit()

    assert site("PUT", "/jobs/order-17", {"priority": "medium"}).status_code == 200

    after = site("GET", "/jobs/order-17?expand=payload").json()
    assert (after["priority"], after["payload"]) == (4, {"key": "value"})


def test_a_job_is_cancelled_once(site: Site) -> None:
    site.submit()

    answer, again = site("DELETE", "/jobs/order-17"), site("DELETE", "/jobs/order-17")

    assert (answer.status_code, answer.json()["status"], answer.json()["job_id"]) == (200, "cancelled", "order-17")
    assert (again.status_code, again.json()["state"]) == (409, "cancelled")


def test_a_job_has_the_fields_of_the_document(site: Site) -> None:
    site.submit()

    answer = site("GET", "/jobs/order-17?fields=job_id,status,start_time,end_time,retries")

    assert answer.json() == {
        "job_id": "order-17",
        "status": "queued",
        "start_time": None,
        "end_time": None,
        "retries": 0,
    }


def test_the_document_form_embeds_logs_and_retries(site: Site) -> None:
    site.submit()
    site("DELETE", "/jobs/order-17?note=ordered+twice")

    found = site("GET", "/jobs/order-17?expand=logs,retries").json()

    assert found["retries"] == []
    assert [line["log_message"] for line in found["logs"]] == ["submitted", "cancel: ordered twice", "cancelled"]
    assert set(found["logs"][0]) == {"log_time", "log_level", "log_message"}


def test_each_retry_is_shown_with_its_outcome(site: Site) -> None:
    error = ErrorRecord(type_name="ValueError", message="no")

    async def fail_twice() -> str:
        driver = JobDriver(site.app.sessions.store())
        job = await driver.dispatch_new(tenant="acme")
        waiting = await driver.expect_accepted(job, "retry", started=1_000, ran=10, error=error)
        await driver.expect_update(waiting, JobState.QUEUED, due=await driver.store.now_ms(), kind="retry")
        (job,) = (await driver.dispatch()).jobs
        await driver.expect_accepted(job, "retry", started=2_000, ran=10, delay=HOUR, error=error)
        return job.id

    with site.client.portal() as portal:
        job_id = portal.call(fail_twice)

    found = site("GET", f"/jobs/{job_id}?expand=logs,retries").json()
    assert [one["status"] for one in found["retries"]] == ["failed", "queued"]
    assert [one["retry_time"] for one in found["retries"]] == ["1970-01-01T00:00:02.000Z", found["due_at"]]
    assert [line["log_message"] for line in found["logs"][:4]] == [
        "attempt 1 started at w1",
        "attempt 1 failed: ValueError: no",
        "attempt 2 started at w1",
        "attempt 2 failed: ValueError: no",
    ]


def test_a_list_of_the_document_is_an_array_with_its_filters(site: Site) -> None:
    site.submit()
    site.submit(job_id="later", schedule_time="2099-06-01T00:00:00Z")
    site.submit(job_id="charge", job_type="billing.charge", payload={"amount": 1})

    assert site.ids("?status=queued&job_type=data_processing&start_time=2099-03-01T00:00:00Z") == ["later"]
    assert site.ids("?status=queued&end_time=2099-01-31T09:00:00Z") == ["charge", "order-17"]
    assert site.ids("?status=completed") == []
    (first, *_) = site("GET", "/jobs?job_type=billing.charge").json()
    assert (first["job_id"], first["status"], first["schedule_time"]) == (
        "charge",
        "queued",
        "2099-01-31T09:00:00.000Z",
    )


def test_statuses_use_the_terms_of_document_003_on_request(site: Site) -> None:
    site.submit()

    assert site("GET", "/jobs/order-17?words=claimed").json()["status"] == "QUEUED"
    assert site("GET", "/jobs?words=claimed").json()[0]["status"] == "QUEUED"


def test_a_job_of_document_000_is_created_scheduled_and_canceled(site: Site) -> None:
    body = {"name": "data_processing", "description": "once", "parameters": {"key": "value"}}

    created = site("POST", "/jobs/create", body)
    job = created.json()["job_id"]
    before = site("GET", f"/jobs/status?job_id={job}").json()
    scheduled = site("POST", "/jobs/schedule", {"job_id": job, "scheduled_time": "2099-01-31T09:00:00Z"})
    after = site("GET", f"/jobs/status?job_id={job}").json()
    canceled = site("POST", "/jobs/schedule", {"job_id": job, "status": "canceled"})

    assert (created.status_code, created.json()["status"]) == (201, "created")
    assert (before["status"], before["state"], before["description"]) == ("queued", "held", "once")
    assert scheduled.json() == {"job_id": job, "scheduled_time": "2099-01-31T09:00:00.000Z", "status": "scheduled"}
    assert (after["state"], after["schedule_time"]) == ("scheduled", "2099-01-31T09:00:00.000Z")
    assert (canceled.json()["status"], site("GET", f"/jobs/{job}").json()["state"]) == ("canceled", "cancelled")


def test_a_submitter_schedules_new_jobs_and_changes_none(site: Site) -> None:
    site.submit()
    when = "2099-03-01T09:00:00Z"

    refused = [
        site("POST", "/jobs/schedule", {"job_id": "order-17", **body}, by="importer")
        for body in ({"status": "canceled"}, {"scheduled_time": when})
    ]
    made = site("POST", "/jobs/schedule", {"definition": "data_processing", "scheduled_time": when}, by="importer")

    assert [(answer.status_code, answer.json()["code"]) for answer in refused] == [(403, "not_allowed")] * 2
    assert site("GET", "/jobs/order-17").json()["version"] == 1
    assert made.status_code == 200


def test_a_definition_is_scheduled_by_its_name(site: Site) -> None:
    site("PUT", "/definitions/monthly", {"task": "data_processing", "kwargs": {"key": "value"}})
    body = {"definition": "monthly", "scheduled_time": "2099-01-31T09:00:00Z"}

    job = site("POST", "/jobs/schedule", body).json()["job_id"]

    found = site("GET", f"/jobs/{job}?expand=payload").json()
    assert (found["job_type"], found["payload"], found["state"]) == ("data_processing", {"key": "value"}, "scheduled")


def test_unsupported_parts_of_document_000_are_named(site: Site) -> None:
    for body, field in (
        ({"scheduled_time": "2099-01-31T09:00:00Z"}, "job_id"),
        ({"job_id": "x", "definition": "y"}, "job_id"),
        ({"definition": "y", "status": "canceled"}, "job_id"),
        ({"job_id": "x"}, "scheduled_time"),
    ):
        answer = site("POST", "/jobs/schedule", body)
        assert [error["field"] for error in answer.json()["errors"]] == [field]
