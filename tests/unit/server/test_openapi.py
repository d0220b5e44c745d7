"""The API's description of itself, and its errors."""

import base64
import hashlib
import html
from typing import Any

import pytest

import taskmq.errors
from taskmq.api.problems import problem_of
from taskmq.errors import JobNotFound, PartlyReplayed, PublishUnknown, RequestRefused, StoreUnavailable, TaskMQError
from taskmq.model.identity import Permission
from taskmq.server.examples import EXAMPLES
from taskmq.server.openapi.page import page_of
from tests.unit.server.kit import Site


@pytest.fixture
def document(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = site("GET", "/api/openapi.json", by=None).json()
    return found


def _operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {operation["operationId"]: operation for path in document["paths"].values() for operation in path.values()}


def test_every_call_has_an_example_and_every_example_a_call(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    operations = _operations(document)

    assert set(operations) == set(EXAMPLES)
    for name, operation in operations.items():
        for status in EXAMPLES[name].answers:
            content = operation["responses"][str(status)]["content"]
            assert "example" in content[EXAMPLES[name].media_type], (name, status)
        if "requestBody" in operation:
            assert "example" in operation["requestBody"]["content"]["application/json"], name
        assert operation["responses"]["default"] == {"$ref": "#/components/responses/Problem"}


def test_every_call_names_its_permission(document: dict[str, Any]) -> None:
    for name, operation in _operations(document).items():
        if operation["security"]:
            permission = operation["description"].rpartition("Permission: `")[2].removesuffix("`.")
            assert permission in set(Permission), name


@pytest.mark.parametrize("name", ["submitJobs", "putJob", "patchJob", "holdJob", "cloneJob", "getJob", "listJobs"])
def test_the_examples_of_jobs_can_be_sent(site: Site, document: dict[str, Any], name: str) -> None:
    if name == "submitJobs":
        for upstream in EXAMPLES[name].body["depends_on"]:
            site.submit(job_id=upstream["job_id"] if isinstance(upstream, dict) else upstream)
    else:
        site.submit()
    example = EXAMPLES[name]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if operation["operationId"] == name:
                where = path.replace("{job_id}", "order-17").removeprefix("/api/v1")
                query = {key: value for key, value in example.parameters.items() if key != "job_id"}

                answer = site(method.upper(), where, example.body, params=query)

                assert answer.status_code in example.answers, answer.text
                expected = example.answers[answer.status_code]
                if isinstance(expected, dict):
                    assert set(answer.json()) == set(expected)
                else:
                    assert set(answer.json()[0]) == set(expected[0])


def _errors() -> list[type[TaskMQError]]:
    return [
        found
        for name in taskmq.errors.__all__
        if issubclass(found := getattr(taskmq.errors, name), TaskMQError) and found is not TaskMQError
    ]


# Errors that no request can cause: those of workers, of clients, of app definitions, and of waiting code.
_INTERNAL = {
    "AppNotFound", "DuplicateTask", "InvalidSetting", "LockLost", "LockTimeout", "MalformedMessage", "MemoryExceeded",
    "PartlySent", "ResultTooLarge", "RunSuperseded", "SendError",
    "ServerUnavailable", "SignalTimeout", "SoftTimeout", "StoreRefused", "TaskTimeout", "WorkerLost",
}  # fmt: skip
# One has its own status, the other that of its cause.
_OF_ITS_OWN_STATUS = {PartlyReplayed, RequestRefused}


def test_every_error_has_a_status_and_a_code_of_its_own_kind() -> None:
    unmapped = set()
    for kind in _errors():
        error = kind.__new__(kind)
        Exception.__init__(error, "what has happened")
        error.__dict__.update(state="", version=0, column=1, is_certain=True, retry_after=1.0)
        if kind not in _OF_ITS_OWN_STATUS and problem_of(error).status == 500:
            unmapped.add(kind.__name__)

    assert unmapped == _INTERNAL


def test_an_error_of_the_server_is_reported_without_its_message() -> None:
    inside = "postgresql://10.0.0.7/jobs refused the connection"

    certain, uncertain = (problem_of(StoreUnavailable(inside, is_certain=known)) for known in (True, False))

    assert (certain.status, certain.code) == (503, "store_unavailable")
    assert certain.detail.endswith("nothing was changed")
    assert uncertain.detail.endswith("the change may have been applied")
    assert "10.0.0.7" not in certain.detail + uncertain.detail
    assert "secret" not in problem_of(TaskMQError("secret")).detail


def test_an_error_of_the_caller_is_reported_with_its_message() -> None:
    found = problem_of(JobNotFound("no job is called 'x'"), "r1")

    assert (found.status, found.code, found.detail, found.request_id) == (
        404,
        "job_not_found",
        "no job is called 'x'",
        "r1",
    )


def test_a_partial_replay_reports_how_far_it_came() -> None:
    found = problem_of(PartlyReplayed(PublishUnknown("no confirm"), failed=2, replayed=3))

    assert (found.status, found.code) == (503, "publish_unknown")
    assert found.detail.startswith("3 letters were replayed, 2 were not")


def test_the_api_page_lists_every_call_and_loads_nothing(site: Site, document: dict[str, Any]) -> None:
    answer = site("GET", "/api/docs", by=None)

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    page = answer.text
    style = page.partition("<style>")[2].partition("</style>")[0].encode()
    assert base64.b64encode(hashlib.sha256(style).digest()).decode() in policy
    assert [word for word in ("<script", " src=", ' href="http', "<link", "url(") if word in page.lower()] == []
    for name, operation in _operations(document).items():
        assert f'<section id="{name}">' in page
        assert html.escape(operation["summary"]) in page


def test_an_example_is_escaped_in_the_page() -> None:
    call = {
        "operationId": "put<x>",
        "summary": "a & b",
        "description": "Sets `<b>`.\n\nPermission: `jobs.write`.",
        "parameters": [{"name": "x", "in": "query", "example": "<script>"}],
        "requestBody": {"content": {"application/json": {"example": {"payload": "</pre><script>"}}}},
        "responses": {"200": {"content": {"application/json": {"example": "<i>"}}}},
    }
    document = {"info": {"title": "t", "version": "1", "description": ""}, "paths": {"/a{b}": {"put": call}}}

    page = page_of(document).decode()

    assert "<script" not in page
    assert "<i>" not in page
    assert "Sets <code>&lt;b&gt;</code>.</p><p>Permission: <code>jobs.write</code>." in page
