"""Named workflows and their runs over HTTP."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal
from httpx import Response
from msgspec.structs import replace

from taskmq.model.envelope import JSON, BlobReference
from taskmq.model.runs.graphs import StepContent, WorkflowContent, encode_workflow
from taskmq.model.values.light_values import REFERENCE, reference_to
from taskmq.testing.job_store_suite.runs.kit import RunDriver
from tests.servers import eventually
from tests.unit.server.kit import Site

_FILE = """
workflow: nightly
params:
  key: {type: string, maxLength: 8}
  number: {type: integer, default: 1}
steps:
  extract: {task: data_processing, with: {key: "${params.key}"}}
  approve:
    wait: approval
    needs: [extract]
    roles: [operator]
    form: {type: object, properties: {ok: {type: boolean}}, required: [ok]}
  charge: {task: billing.charge, needs: [approve], with: {amount: "${params.number}"}, if: steps.approve.result.ok}
"""


class _Runs:
    """The scheduler and the workers of a site."""

    def __init__(self, site: Site, portal: BlockingPortal) -> None:
        self._site = site
        self._portal = portal
        self._driver = RunDriver(site.app.sessions.store())

    def settle(self) -> None:
        self._portal.call(self._driver.settle)

    def put(self, name: str, content: bytes, tenant: str = "acme") -> str:
        """Store a workflow that no file can describe; return its version."""

        async def put() -> str:
            return (await self._driver.runs.put_workflow(tenant, name, content)).version

        return self._portal.call(put)

    def finish(self, run_id: str, step: str, value: Any = None, **fields: Any) -> None:
        async def finish() -> None:
            await self._driver.finish(run_id, step, value=value, **fields)

        self._portal.call(finish)

    def keep(self, value: bytes) -> BlobReference:
        """Store a large value where workers store it."""

        async def keep() -> BlobReference:
            large = self._site.app.sessions.current().large_values
            assert large is not None
            return await large.keep("job", value, ttl=60)

        return self._portal.call(keep)

    def ask(self, path: str, body: Any, by: str = "acme-admin") -> Response:
        """Send a request whose answer waits for the scheduler."""
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self._site, "POST", path, body, by=by)

            def is_answered() -> bool:
                self.settle()
                return answer.done()

            eventually(is_answered, "the answer")
            return answer.result()


@pytest.fixture
def runs(site: Site) -> Iterator[_Runs]:
    with site.client.portal() as portal:

        async def begin() -> _Runs:
            return _Runs(site, portal)

        yield portal.call(begin)


def _start(site: Site, **body: Any) -> str:
    assert site("PUT", "/workflows/nightly", {"text": _FILE}).status_code == 200
    answer = site("POST", "/workflows/nightly/start", {"params": {"key": "photos"}, **body})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["run_id"])


def test_new_content_of_a_workflow_becomes_the_current_version(site: Site) -> None:
    first = site("PUT", "/workflows/nightly", {"text": _FILE}).json()
    same = site("PUT", "/workflows/nightly", {"text": _FILE}).json()
    trial = site("PUT", "/workflows/nightly", {"text": _FILE.replace("8", "9"), "dry_run": True}).json()
    second = site("PUT", "/workflows/nightly", {"text": _FILE.replace("8", "16")}).json()
    again = site("PUT", "/workflows/nightly", {"text": _FILE}).json()
    listed = site("GET", "/workflows/nightly/versions").json()["items"]
    back = site("POST", "/workflows/nightly/activate", {"version": first["version"]}).json()

    assert [(one["is_new"], one["is_current"]) for one in (first, same, trial, second, again)] == [
        (True, True), (False, True), (True, True), (True, True), (False, False),
    ]  # fmt: skip
    assert first["version"] == same["version"] == again["version"]
    assert trial["at"] is None
    assert [one["version"] for one in listed] == [second["version"], first["version"]]
    assert back["is_current"]
    assert site("GET", "/workflows/nightly").json()["version"] == first["version"]
    assert site("GET", f"/workflows/nightly?version={second['version']}").json()["content"]["params"]["key"] == {
        "type": "string",
        "maxLength": 16,
    }
    assert [one["name"] for one in site("GET", "/workflows").json()["items"]] == ["nightly"]
    assert site("GET", "/workflows/other").json()["code"] == "workflow_not_found"
    assert site("POST", "/workflows/nightly/activate", {"version": "none"}).status_code == 404


def test_a_faulty_workflow_is_refused_with_its_lines(site: Site) -> None:
    text = _FILE.replace("billing.charge", "biling.charge").replace("amount:", "amuont:")

    answer = site("PUT", "/workflows/nightly", {"text": text})
    scheduled = site("PUT", "/workflows/nightly", {"text": f"schedule: {{cron: '@daily'}}{_FILE}"}).json()["detail"]

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_workflow")
    assert answer.json()["detail"] == (
        "line 13, step charge, task: no task 'biling.charge': did you mean 'billing.charge'?"
    )
    assert scheduled == "line 1, schedule.params: give 'key': it has no default"
    assert site("GET", "/workflows").json()["items"] == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "give 'key': it has no default"),
        ({"params": {"key": "photos", "nubmer": 2}}, "no parameter 'nubmer': did you mean 'number'?"),
        ({"params": {"key": "photographs"}}, "parameter 'key': the value is longer than 8 characters"),
    ],
)
def test_a_run_with_wrong_parameters_is_not_started(site: Site, body: Any, reason: str) -> None:
    site("PUT", "/workflows/nightly", {"text": _FILE})

    answer = site("POST", "/workflows/nightly/start", body)

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_option")
    assert reason in answer.json()["detail"]
    assert site("GET", "/runs").json()["items"] == []


def test_a_run_started_again_under_its_id_is_the_same_run(site: Site) -> None:
    body = {"params": {"key": "photos"}, "run_id": "order-17"}

    first = _start(site, run_id="order-17", labels={"team": "ops"})
    again = site("POST", "/workflows/nightly/start", body)
    site("PUT", "/workflows/other", {"text": _FILE.replace("nightly", "other")})
    taken = site("POST", "/workflows/other/start", body)

    assert (again.status_code, again.json()["run_id"], again.json()["is_new"]) == (201, first, False)
    assert site("GET", "/runs/order-17").json()["run_id"] == first
    assert site("GET", "/runs/order-17", by="other-admin").status_code == 404
    assert (taken.status_code, taken.json()["code"]) == (409, "run_exists")


def test_runs_are_listed_by_a_filter(site: Site) -> None:
    first = _start(site, labels={"team": "ops"})
    second = _start(site)

    def ids(which: str, by: str = "acme-viewer") -> list[str]:
        return [run["run_id"] for run in site("GET", "/runs", params={"filter": which}, by=by).json()["items"]]

    assert ids("") == [second, first]
    assert ids("workflow:night* status:running started:>-1h") == [second, first]
    assert ids("label.team:ops") == [first]
    assert ids("status:failed") == ids("workflow:other") == ids("started:<-1h") == []
    assert ids("tenant:other") == ids("", by="other-admin") == []
    assert ids("tenant:acme", by="all-viewer") == [second, first]
    page = site("GET", "/runs?limit=1").json()
    assert [(run["run_id"], run["steps"], run["unfinished"]) for run in page["items"]] == [(second, 3, 3)]
    assert [run["run_id"] for run in site("GET", f"/runs?limit=1&cursor={page['next']}").json()["items"]] == [first]
    assert site("GET", "/runs?filter=stauts:failed").json()["code"] == "invalid_filter"
    assert site("GET", "/runs?cursor=none").json()["code"] == "invalid_option"


def test_runs_are_listed_with_the_first_100_steps_of_each(site: Site, runs: _Runs) -> None:
    first = _start(site)
    runs.settle()
    runs.finish(first, "extract", "done")
    second = _start(site)
    wide = "steps: {" + ", ".join(f"s{number:03}: {{wait: go}}" for number in range(120)) + "}"
    assert site("PUT", "/workflows/wide", {"text": wide}).is_success
    assert site("POST", "/workflows/wide/start").is_success

    def marks(which: str, by: str = "acme-viewer") -> dict[str, list[dict[str, Any]]]:
        page = site("GET", "/runs", params={"filter": which, "expand": "steps"}, by=by).json()
        return {run["run_id"]: run["marks"] for run in page["items"]}

    found = marks("workflow:nightly")
    states = {run: [(mark["step"], mark["state"]) for mark in each] for run, each in found.items()}
    assert states == {
        second: [("extract", "waiting"), ("approve", "waiting"), ("charge", "waiting")],
        first: [("extract", "succeeded"), ("approve", "running"), ("charge", "waiting")],
    }
    assert [mark["kind"] for mark in found[first]] == ["task", "wait", "task"]
    assert found[first][0]["started"] <= found[first][0]["ended"]
    (first_steps,) = marks("workflow:wide").values()
    assert [mark["step"] for mark in first_steps] == [f"s{number:03}" for number in range(100)]
    assert marks("", by="other-admin") == {}
    assert marks("tenant:acme workflow:nightly", by="all-viewer") == found
    assert site("GET", "/runs?expand=stesp").status_code == 400


def test_a_run_is_shown_with_its_steps_until_its_end(site: Site, runs: _Runs) -> None:
    run_id = _start(site)
    runs.settle()
    before = site("GET", f"/runs/{run_id}/graph").json()
    runs.finish(run_id, "extract", "done")
    signalled = runs.ask(f"/runs/{run_id}/signal", {"signal": "approval", "value": {"ok": True}})
    runs.settle()
    runs.finish(run_id, "charge", 17)

    assert [(step["step"], step["kind"], step["state"], step["needs"]) for step in before["steps"]] == [
        ("extract", "task", "running", []),
        ("approve", "wait", "waiting", ["extract"]),
        ("charge", "task", "waiting", ["approve"]),
    ]
    assert signalled.json()["effect"] == "consumed"
    run = site("GET", f"/runs/{run_id}").json()
    assert (run["state"], run["value"], run["params"]) == (
        "succeeded",
        {"charge": 17},
        {"key": "photos", "number": 1},
    )
    first = site("GET", f"/runs/{run_id}/steps?limit=2").json()
    rest = site("GET", f"/runs/{run_id}/steps?cursor={first['next']}").json()
    steps = [*first["items"], *rest["items"]]
    assert [step["step"] for step in steps] == ["approve", "charge", "extract"]
    assert {step["state"] for step in steps} == {"succeeded"}
    job = site("GET", f"/jobs/{steps[2]['job_id']}").json()
    assert job["task"] == "data_processing"


@pytest.mark.parametrize(
    ("body", "by", "status", "code"),
    [
        ({"signal": "aproval", "value": {"ok": True}}, "acme-operator", 409, "signal_refused"),
        ({"signal": "approval", "value": {"ok": 1}}, "acme-operator", 422, "invalid_arguments"),
        ({"signal": "approval", "value": {"ok": True}, "step": "extract"}, "acme-operator", 409, "signal_refused"),
        ({"signal": "approval", "value": {"ok": True}}, "acme-submitter", 409, "signal_refused"),
        ({"signal": "approval", "value": {"ok": True}}, "acme-viewer", 403, "not_allowed"),
        ({"signal": "approval", "value": {"ok": True}}, "other-admin", 404, "run_not_found"),
    ],
)
def test_a_signal_that_no_step_may_take_is_refused(
    site: Site, runs: _Runs, body: Any, by: str, status: int, code: str
) -> None:
    run_id = _start(site)
    runs.settle()
    runs.finish(run_id, "extract")

    answer = runs.ask(f"/runs/{run_id}/signal", body, by=by)

    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_group_that_a_wait_names_may_answer_it(site: Site, runs: _Runs) -> None:
    site("PUT", "/workflows/nightly", {"text": _FILE.replace("roles: [operator]", "roles: ['group:finance']")})
    run_id = site("POST", "/workflows/nightly/start", {"params": {"key": "photos"}}).json()["run_id"]
    runs.settle()
    runs.finish(run_id, "extract")
    body = {"signal": "approval", "value": {"ok": True}}

    refused = runs.ask(f"/runs/{run_id}/signal", body)
    answered = runs.ask(f"/runs/{run_id}/signal", body, by="acme-finance")

    assert (refused.status_code, refused.json()["code"]) == (409, "signal_refused")
    assert (answered.status_code, answered.json()["effect"]) == (200, "consumed")


def test_a_signal_with_a_form_waits_until_the_graph_is_built(site: Site, runs: _Runs) -> None:
    begun = WorkflowContent(workflow="built", steps={"build": StepContent(task="data_processing", builds=True)})
    runs.put("built", encode_workflow(begun)[1])
    run_id = site("POST", "/workflows/built/start", {}).json()["run_id"]
    runs.settle()

    body = {"signal": "go", "value": "x"}
    early = site("POST", f"/runs/{run_id}/signal", body)
    runs.finish(run_id, "build", value={"steps": {"wait": {"wait": "go", "form": {"type": "integer"}}}})
    wrong = site("POST", f"/runs/{run_id}/signal", body)

    assert (early.status_code, early.json()["code"]) == (409, "signal_refused")
    assert "its graph is not built yet" in early.json()["detail"]
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_arguments")


def test_a_signal_sent_twice_is_consumed_once(site: Site, runs: _Runs) -> None:
    run_id = _start(site)
    runs.settle()
    body = {"signal": "approval", "value": {"ok": False}, "signal_id": "order-17"}

    early = runs.ask(f"/runs/{run_id}/signal", body)
    runs.finish(run_id, "extract")
    again = runs.ask(f"/runs/{run_id}/signal", {**body, "value": {"ok": True}})

    assert [early.json()["effect"], again.json()["effect"]] == ["waiting", "consumed"]
    run = site("GET", f"/runs/{run_id}").json()
    assert run["state"] == "succeeded"
    steps = {step["step"]: step for step in site("GET", f"/runs/{run_id}/steps").json()["items"]}
    assert steps["charge"]["state"] == "skipped"


def test_a_signal_to_an_ended_run_is_refused(site: Site, runs: _Runs) -> None:
    run_id = _start(site)
    runs.settle()
    runs.finish(run_id, "extract")
    body = {"signal": "approval", "value": {"ok": False}}

    consumed = runs.ask(f"/runs/{run_id}/signal", body)
    late = runs.ask(f"/runs/{run_id}/signal", {**body, "value": {"ok": True}})

    assert consumed.json()["effect"] == "consumed"
    assert (late.status_code, late.json()["code"]) == (409, "signal_refused")
    assert "the run has ended" in late.json()["detail"]
    assert site("GET", f"/runs/{run_id}").json()["state"] == "succeeded"


def test_a_run_is_cancelled_and_redriven(site: Site, runs: _Runs) -> None:
    run_id = _start(site)
    runs.settle()

    early = runs.ask(f"/runs/{run_id}/redrive", {})
    cancelled = runs.ask(f"/runs/{run_id}/cancel", {"reason": "ordered twice"})
    runs.settle()
    late = runs.ask(f"/runs/{run_id}/cancel", {})
    shown = site("GET", f"/runs/{run_id}").json()
    unknown = runs.ask(f"/runs/{run_id}/redrive", {"step": "nothing"})
    preview = site("POST", f"/runs/{run_id}/redrive", {"dry_run": True})
    redriven = runs.ask(f"/runs/{run_id}/redrive", {})

    assert (early.status_code, early.json()["code"]) == (409, "redrive_refused")
    assert cancelled.json() == {"status": "cancelling", "run_id": run_id}
    assert (late.status_code, late.json()["code"]) == (409, "workflow_ended")
    assert (shown["state"], shown["cancelled"]) == ("cancelled", "ordered twice")
    assert "there is no step 'nothing'" in unknown.json()["detail"]
    assert (preview.json()["status"], preview.json()["steps"]) == ("dry_run", ["extract", "approve", "charge"])
    assert redriven.json() == {**preview.json(), "status": "redriven"}
    assert site("GET", f"/runs/{run_id}").json()["generation"] == 1


def test_a_child_run_is_held_with_its_parent_and_is_not_released_alone(site: Site, runs: _Runs) -> None:
    for name, text in {"inner": "steps: {go: {wait: go}}", "outer": "steps: {sub: {workflow: inner}}"}.items():
        assert site("PUT", f"/workflows/{name}", {"text": text}).status_code == 200
    run_id = site("POST", "/workflows/outer/start").json()["run_id"]
    runs.settle()
    (child,) = [run["run_id"] for run in site("GET", "/runs?filter=workflow:inner").json()["items"]]

    runs.ask(f"/runs/{run_id}/hold", {"reason": "disk full"})
    runs.settle()
    refused = runs.ask(f"/runs/{child}/release", {})
    held = site("GET", f"/runs/{child}").json()["held"]
    released = runs.ask(f"/runs/{run_id}/release", {})
    runs.settle()

    assert (refused.status_code, refused.json()["code"]) == (409, "held_above")
    assert held == f"run {run_id} is held: disk full"
    assert released.json() == {"status": "released", "run_id": run_id}
    assert site("GET", f"/runs/{child}").json()["held"] is None


def test_children_of_a_step_are_listed_by_pages(site: Site, runs: _Runs) -> None:
    text = "steps: {all: {each: [1, 2, 3], task: billing.charge, with: {amount: '${item}'}, limit: 2}}"
    assert site("PUT", "/workflows/many", {"text": text}).status_code == 200
    run_id = site("POST", "/workflows/many/start").json()["run_id"]
    runs.settle()

    path = f"/runs/{run_id}/steps"
    first = site("GET", f"{path}/all/children?limit=1").json()
    rest = site("GET", f"{path}/all/children?limit=1&cursor={first['next']}").json()

    children = [*first["items"], *rest["items"]]
    assert [(child["number"], child["state"]) for child in children] == [(0, "running"), (1, "running")]
    assert rest["next"] is None
    assert site("GET", f"/jobs/{children[1]['job_id']}").json()["task"] == "billing.charge"
    assert "no step 'al': did you mean 'all'?" in site("GET", f"{path}/al/children").json()["detail"]
    assert site("GET", f"{path}/all/children?cursor=none").json()["code"] == "invalid_option"
    assert site("GET", f"{path}/all/children", by="other-admin").status_code == 404


def test_a_change_is_sent_even_if_no_scheduler_runs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskmq.workflow.runs.service._PATIENCE", 0.0)
    run_id = _start(site)

    answer = site("POST", f"/runs/{run_id}/signal", {"signal": "approval", "value": {"ok": True}})

    assert answer.json()["effect"] == "sent"


@pytest.mark.parametrize(("damage", "code"), [({}, None), ({"name": "lost"}, "result_expired")])
def test_a_run_has_its_large_value_or_the_reason_why_not(
    site: Site, runs: _Runs, damage: dict[str, str], code: str | None
) -> None:
    text = "workflow: one\nsteps: {extract: {task: data_processing, with: {key: a}}}"
    assert site("PUT", "/workflows/one", {"text": text}).status_code == 200
    run_id = site("POST", "/workflows/one/start", {}).json()["run_id"]
    runs.settle()
    blob = replace(runs.keep(b'{"rows":7}'), **damage)

    runs.finish(run_id, "extract", content_type=REFERENCE, result=reference_to(JSON, blob))

    run = site("GET", f"/runs/{run_id}").json()
    assert run["state"] == "succeeded"
    assert run["value"] == ({"extract": {"rows": 7}} if code is None else None)
    assert (run["value_problem"] or {}).get("code") == code


def test_runs_belong_to_their_tenant_and_values_to_those_who_read_jobs(site: Site) -> None:
    run_id = _start(site)

    assert site("GET", f"/runs/{run_id}", by="other-admin").json()["code"] == "run_not_found"
    assert site("GET", "/workflows/nightly", by="other-admin").status_code == 404
    assert site("POST", "/workflows/nightly/start", {}, by="picky").status_code == 403
    assert site("POST", f"/runs/{run_id}/cancel", by="picky").status_code == 403
    assert site("GET", f"/runs/{run_id}", by="all-viewer").json()["params"] == {"key": "photos", "number": 1}
    assert site("GET", "/runs/nonsense").status_code == 404


def test_tenants_start_shared_workflows_and_see_none_of_another_tenant(site: Site, runs: _Runs) -> None:
    begun = StepContent(task="data_processing", builds=True)
    content = encode_workflow(WorkflowContent(steps={"build": begun}))[1]
    (shared,) = {runs.put(name, content, tenant="") for name in ("aa", "nightly", "zz")}
    runs.put("secret", content, tenant="other")

    before = [site("GET", path).json() for path in ("/workflows/zz", "/workflows/zz/versions")]
    started = site("POST", "/workflows/zz/start", {})
    own = site("PUT", "/workflows/nightly", {"text": _FILE}).json()

    assert (before[0]["version"], [each["version"] for each in before[1]["items"]]) == (shared, [shared])
    assert (started.status_code, started.json()["version"]) == (201, shared)
    assert site("GET", f"/runs/{started.json()['run_id']}", by="other-admin").status_code == 404
    assert own["is_new"]
    assert site("GET", "/workflows/nightly").json()["version"] == own["version"]
    assert site("GET", "/workflows/nightly", by="other-admin").json()["version"] != own["version"]
    assert _names(site, "acme-admin") == ["aa", "nightly", "zz"]
    assert _names(site, "other-admin") == ["aa", "nightly", "secret", "zz"]
    for method, path in (("GET", ""), ("GET", "/versions"), ("POST", "/start")):
        assert site(method, f"/workflows/secret{path}").status_code == 404
    marks = [site("GET", "/workflows", by=by).json()["items"] for by in ("acme-admin", "all-viewer")]
    assert [[one["name"] for one in each if one["is_shared"]] for each in marks] == [["aa", "zz"], []]
    assert [each["is_shared"] for each in (before[0], *before[1]["items"], own)] == [True, True, False]
    foreign = site("GET", f"/workflows/nightly?version={own['version']}", by="other-admin")
    assert foreign.status_code == 404


def test_a_tenant_cannot_change_a_shared_workflow(site: Site, runs: _Runs) -> None:
    begun = StepContent(task="data_processing", builds=True)
    shared = runs.put("all", encode_workflow(WorkflowContent(steps={"build": begun}))[1], tenant="")

    refused = site("POST", "/workflows/all/activate", {"version": shared})

    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    assert "workflow 'all' is shared by all tenants" in refused.json()["detail"]
    assert site("PUT", "/workflows/all", {"text": _FILE.replace("nightly", "all")}).status_code == 200
    assert site("GET", "/workflows/all", by="other-admin").json()["version"] == shared


def _names(site: Site, by: str) -> list[str]:
    """Return the names of the workflows that a user sees, read page by page."""
    found: list[str] = []
    cursor = ""
    while True:
        page = site("GET", f"/workflows?limit=1{cursor}", by=by).json()
        found += [each["name"] for each in page["items"]]
        if page["next"] is None:
            return found
        cursor = f"&cursor={page['next']}"


def test_changes_of_workflows_and_runs_are_audited(site: Site, runs: _Runs) -> None:
    run_id = _start(site)
    runs.ask(f"/runs/{run_id}/cancel", {"reason": "ordered twice"})

    found = site("GET", "/audit?limit=10").json()["items"]
    assert [(each["action"], each["subject"]) for each in found] == [
        ("run.cancel", run_id),
        ("workflow.start", "nightly"),
        ("workflow.put", "nightly"),
    ]


def test_a_queued_run_says_how_many_runs_are_active_and_wait_before_it(site: Site, runs: _Runs) -> None:
    text = f"{_FILE}max_active_runs: 1\n"
    assert site("PUT", "/workflows/nightly", {"text": text}).json()["content"]["max_active_runs"] == 1
    body = {"params": {"key": "photos"}}
    ids = [site("POST", "/workflows/nightly/start", body).json()["run_id"] for _ in range(3)]
    runs.settle()

    queued = site("GET", "/runs?filter=status:queued").json()["items"]
    assert [(run["run_id"], run["state"], run["begun"]) for run in queued] == [
        (run_id, "queued", None) for run_id in reversed(ids[1:])
    ]
    places = [site("GET", f"/runs/{run_id}").json()["place"] for run_id in ids]
    assert places == [None, {"active": 1, "most": 1, "ahead": 0}, {"active": 1, "most": 1, "ahead": 1}]
    (row, *_) = site("GET", f"/runs/{ids[1]}/timeline").json()["items"]
    assert (row["state"], row["ready"]) == ("waiting", None)
    assert runs.ask(f"/runs/{ids[0]}/cancel", {}).status_code == 200
    runs.settle()
    begun = site("GET", f"/runs/{ids[1]}").json()
    assert (begun["state"], begun["place"]) == ("running", None)
    assert site("GET", f"/runs/{ids[1]}/timeline").json()["items"][0]["ready"] == begun["begun"] != begun["started"]
