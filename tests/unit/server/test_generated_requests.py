"""Requests generated from the API's own description: none is a server error.

`TASKMQ_TEST_API_EXAMPLES` is the number per call, 1 by default.
"""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.unit.server.kit import Site

_EXAMPLES = int(os.environ.get("TASKMQ_TEST_API_EXAMPLES", "1"))
# A login computes an expensive password hash; a stream does not end.
_LEFT_OUT = {"logIn", "logInCompat", "changePassword", "addUser", "changeUser", "followEvents"}


@pytest.mark.nightly("tests/unit/server/test_hostile.py")
def test_no_generated_request_is_an_error_of_the_server(site: Site) -> None:
    import schemathesis

    site.submit()
    document: dict[str, Any] = site("GET", "/api/openapi.json", by=None).json()
    schema: Any = schemathesis.openapi.from_dict(document)
    operations = [found.ok() for found in schema.get_all_operations()]
    failures: list[tuple[str, str, str]] = []

    for operation in operations:
        if operation.definition.raw["operationId"] not in _LEFT_OUT:
            _ask(site, operation, failures)

    assert {operation.definition.raw["operationId"] for operation in operations} >= _LEFT_OUT
    assert failures == []


def _ask(site: Site, operation: Any, failures: list[tuple[str, str, str]]) -> None:
    @settings(
        max_examples=_EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        answer = _send(site, case)
        if answer.status_code >= 500:
            failures.append((operation.label, str(answer.request.url), answer.text))

    ask()


def _send(site: Site, case: Any) -> Any:
    from schemathesis.core import NOT_SET

    query = {name: value for name, value in (case.query or {}).items() if name != "within"}
    if "within" in (case.query or {}):
        # There are no workers that could answer.
        query["within"] = 0.01
    body = {} if case.body is NOT_SET else {"json": case.body}
    return site.client.request(
        case.method,
        case.formatted_path,
        params=query,
        headers={**dict(case.headers or {}), "Authorization": "Bearer all-admin"},
        **body,
    )
