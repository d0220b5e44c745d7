"""Tasks and definitions over HTTP."""

from tests.unit.server.kit import Site


def test_tasks_are_listed_with_the_schema_of_their_arguments(site: Site) -> None:
    names = [task["name"] for task in site("GET", "/tasks").json()["items"]]
    first = site("GET", "/tasks?limit=2").json()
    second = site("GET", f"/tasks?limit=2&cursor={first['next']}").json()
    task = site("GET", "/tasks/billing.charge").json()

    assert names == ["billing.charge", "data_processing", "report"]
    assert [one["name"] for one in (*first["items"], *second["items"])] == names
    assert second["next"] is None
    assert (task["queue"], task["is_own"], task["arguments"]["required"]) == ("billing", True, ["amount"])
    assert site("GET", "/tasks/nothing").json()["code"] == "task_not_found"


def test_a_definition_has_versions_and_jobs_are_created_from_it(site: Site) -> None:
    body = {"task": "data_processing", "kwargs": {"key": "value"}, "priority": "low", "labels": {"team": "web"}}

    first = site("PUT", "/definitions/monthly", body, headers={"If-None-Match": "*"})
    same = site("PUT", "/definitions/monthly", body)
    taken = site("PUT", "/definitions/monthly", body, headers={"If-None-Match": "*"})
    second = site("PUT", "/definitions/monthly", {**body, "kwargs": {}}, headers={"If-Match": '"1"'})
    site.submit(job_id="j1", job_type="monthly", payload={"key": "own"}, priority=None)

    assert [answer.json()["version"] for answer in (first, same, second)] == [1, 1, 2]
    assert (taken.status_code, taken.json()["code"], taken.json()["version"]) == (412, "version_mismatch", 1)
    assert [one["version"] for one in site("GET", "/definitions/monthly/versions").json()["items"]] == [2, 1]
    assert site("GET", "/definitions/monthly?version=1").json()["kwargs"] == {"key": "value"}
    job = site("GET", "/jobs/j1?expand=payload").json()
    assert (job["task"], job["payload"], job["priority"]) == ("data_processing", {"key": "own"}, 1)
    assert [one["name"] for one in site("GET", "/definitions").json()["items"]] == ["monthly"]
    assert site("DELETE", "/definitions/monthly").json() == {"status": "deleted", "name": "monthly"}
    assert site("GET", "/definitions/monthly").json()["code"] == "definition_not_found"


def test_definitions_belong_to_their_tenant_and_need_a_permitted_task(site: Site) -> None:
    site("PUT", "/definitions/monthly", {"task": "data_processing"})

    assert site("GET", "/definitions/monthly", by="other-admin").status_code == 404
    assert site("GET", "/definitions", by="other-admin").json()["items"] == []
    assert site("POST", "/jobs", {"job_type": "monthly"}, by="other-admin").json()["code"] == "unknown_task"
    refused = site("POST", "/jobs", {"job_type": "monthly"}, by="picky")
    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    assert site("PUT", "/definitions/mine", {"task": "data_processing"}, by="picky").status_code == 403
    assert site("DELETE", "/definitions/monthly", by="picky").json()["code"] == "not_allowed"
    assert site("GET", "/definitions/monthly").status_code == 200


def test_changes_of_definitions_are_audited_without_their_arguments(site: Site) -> None:
    site("PUT", "/definitions/monthly", {"task": "data_processing", "kwargs": {"key": "secret"}}, by="acme-operator")
    site("DELETE", "/definitions/monthly", by="acme-operator")

    answer = site("GET", "/audit?action=definition.")
    assert [(each["action"], each["user"], each["subject"]) for each in answer.json()["items"]] == [
        ("definition.delete", "acme-operator", "monthly"),
        ("definition.put", "acme-operator", "monthly"),
    ]
    assert "data_processing" in answer.text
    assert "secret" not in answer.text


def test_a_definition_cannot_change_the_owner_or_the_queue_of_its_task(site: Site) -> None:
    own = {"task": "billing.charge", "kwargs": {"amount": 1}, "owner": "acme-operator", "queue": "billing"}

    kept = site("PUT", "/definitions/monthly", own, by="acme-operator")
    owner, queue = (
        site("PUT", "/definitions/other", {**own, name: "other"}, by="acme-operator") for name in ("owner", "queue")
    )

    assert (kept.json()["owner"], kept.json()["queue"]) == ("acme-operator", "billing")
    assert [answer.status_code for answer in (owner, queue)] == [400, 400]
    assert ["omit it" in owner.json()["detail"], "omit the queue" in queue.json()["detail"]] == [True, True]
    assert site("GET", "/definitions/other").status_code == 404


def test_a_role_on_one_tenant_reads_no_task_options(site: Site) -> None:
    everywhere, here = (site("GET", "/tasks/report", by=who).json() for who in ("all-viewer", "acme-viewer"))

    assert (everywhere["options"]["max_attempts"], here["options"], here["by"]) == (5, None, "")
