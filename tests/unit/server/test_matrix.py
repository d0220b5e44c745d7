"""Every API call with every role, on no tenant, the own and a foreign one; derived from the OpenAPI document.

A new call is included without a line here. The expected permissions are computed from the table of
docs/security.md, not by the code under test.
"""

import asyncio
import re
import uuid
from collections.abc import Iterable, Iterator
from itertools import product, starmap
from typing import Any, NamedTuple

import pytest
from httpx import Response
from litestar.testing import TestClient

from taskmq import TaskMQ
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.identity import Actor, NewApiToken, NewBrowserSession, NewUser, Tenant
from taskmq.model.identity import EVERYWHERE, Membership, Permission, Role, session_key, token_key
from taskmq_sql import open_job_store
from tests.docs.security_page import PAGE
from tests.nightly import nightly_except
from tests.unit.app_kit import new_store, new_url
from tests.unit.server.kit import ask_all, build_served, define

_BY = Actor(user="tests")
_ROW = re.compile(r"^\| `(?P<permission>[\w.]+)` \| (?P<on>\w+) \| (?P<role>\w+) \|", re.MULTILINE)
_RANKS = {"none": -1, **{role.value: rank for rank, role in enumerate(Role)}}
_RULES = {found["permission"]: (found["on"], _RANKS[found["role"]]) for found in _ROW.finditer(PAGE.read_text())}
_CALLERS = {f"{role} of {tenant}": (tenant, role) for tenant in ("acme", EVERYWHERE) for role in Role}
_TENANTS = (None, "acme", "other", "absent")
# One ends the sessions of the others; a stream does not end.
_NOT_CALLED = {"logOut", "logOutCompat", "followEvents"}


class Operation(NamedTuple):
    """A call as the document describes it; the objects in its path do not exist."""

    name: str
    method: str
    path: str
    permission: str | None
    takes_body: bool


class Call(NamedTuple):
    """A request for an operation: the secret of its caller, and the tenant that it names."""

    operation: Operation
    secret: str | None
    tenant: str | None = None


class House(NamedTuple):
    """A served app with tenants and a user for each role, who has a session and can get tokens."""

    client: "TestClient[Any]"
    sessions: dict[str, str]
    tokens: dict[tuple[str, str], str]
    operations: list[Operation]

    def call_all(self, calls: Iterable[Call]) -> list[Response]:
        return ask_all(self.client, map(_request, calls))

    def allowed_operations(self) -> list[Operation]:
        return [each for each in self.operations if each.permission is not None and each.name not in _NOT_CALLED]


def _request(call: Call) -> dict[str, Any]:
    operation, secret, tenant = call
    query: dict[str, Any] = {} if tenant is None else {"tenant": tenant}
    if operation.path.endswith("/workers"):
        # There is no worker that could answer.
        query["within"] = "0.01"
    return {
        "method": operation.method,
        "url": operation.path,
        "params": query,
        "headers": {} if secret is None else {"Authorization": f"Bearer {secret}"},
        "json": {"unreadable": True} if operation.takes_body else None,
    }


async def _populate(url: str) -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """Create tenants, users, session secrets, and the admin's tokens with and without each permission."""
    store = open_job_store(url, BrokerOptions(name="test"))
    accounts, credentials = store.identity.accounts, store.identity.credentials
    for tenant in ("acme", "other"):
        await accounts.add_tenant(Tenant(name=tenant), by=_BY)
    sessions: dict[str, str] = {}
    ids: dict[str, str] = {}
    for name, (tenant, role) in _CALLERS.items():
        user_id, key = str(uuid.uuid4()), session_key(uuid.uuid4().bytes * 2)
        memberships = (Membership(tenant, role),)
        user = NewUser(id=user_id, name=name.replace(" ", "-").replace("*", "all"), memberships=memberships)
        await accounts.add_user(user, by=_BY)
        await credentials.add_session(
            NewBrowserSession(id=user_id, user_id=user_id, digest=key.digest, idle_ms=10**7, longest_ms=10**7), by=_BY
        )
        sessions[name], ids[name] = key.text, user_id
    tokens: dict[tuple[str, str], str] = {}
    for permission, has in product(Permission, (True, False)):
        scopes = {permission} if has else set(Permission) - {permission}
        token = token_key(uuid.uuid4().bytes * 2)
        await credentials.add_token(
            NewApiToken(
                id=str(uuid.uuid4()),
                user_id=ids[f"{Role.ADMIN} of {EVERYWHERE}"],
                name=f"{permission}-{has}",
                digest=token.digest,
                scopes=frozenset(scopes),
            ),
            by=_BY,
        )
        tokens[permission.value, "with" if has else "without"] = token.text
    await store.aclose()
    return sessions, tokens


def _operations(document: dict[str, Any]) -> list[Operation]:
    found: list[Operation] = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            permission = None
            if operation["security"]:
                permission = operation["description"].rpartition("Permission: `")[2].removesuffix("`.")
            where = re.sub(r"\{\w+\}", "absent", path)
            found.append(
                Operation(operation["operationId"], method.upper(), where, permission, "requestBody" in operation)
            )
    return found


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    url = new_store()
    app = TaskMQ(new_url(), store=url)
    define(app)
    with TestClient(build_served(app), raise_server_exceptions=False) as client:
        sessions, tokens = asyncio.run(_populate(url))
        document = client.get("/api/openapi.json").json()
        yield House(client, sessions, tokens, _operations(document))


def _verdict(operation: Operation, role: Role, where: str, tenant: str | None) -> str:
    """Return the expected result of a call: `yes`, `no`, or `absent` for a tenant hidden from the caller."""
    assert operation.permission is not None
    on, needed = _RULES[operation.permission]
    is_enough = _RANKS[role] >= needed
    if on == "account":
        return "yes"
    if on == "instance":
        return "yes" if is_enough and where == EVERYWHERE else "no"
    if on == "anywhere" or tenant is None or where in (tenant, EVERYWHERE):
        return "yes" if is_enough else "no"
    return "absent"


def _actual_verdict(answer: Response) -> str:
    """Return the actual result in the terms of `_verdict`."""
    if answer.status_code == 401:
        return "nobody"
    if answer.status_code == 403:
        return "no"
    return "absent" if answer.status_code == 404 and answer.json()["code"] == "tenant_not_found" else "yes"


def test_the_document_has_calls_of_most_kinds(house: House) -> None:
    kinds = {(each.permission or "public").partition(".")[0] for each in house.operations}

    assert len(house.operations) >= 60
    assert kinds >= {"public", "jobs", "queues", "schedules", "users", "tenants", "audit", "account", "workers"}
    assert {each.permission for each in house.allowed_operations()} <= set(_RULES)
    assert set(_RULES) == {permission.value for permission in Permission}


@pytest.mark.parametrize(
    "caller",
    nightly_except(
        {f"{Role.SUBMITTER} of acme", f"{Role.ADMIN} of acme", f"{Role.OPERATOR} of {EVERYWHERE}"},
        _CALLERS,
        pytest.mark.nightly(
            "tests/unit/server/test_matrix.py::test_every_call_is_answered_exactly_to_permitted_callers"
        ),
    ),
)
def test_every_call_is_answered_exactly_to_permitted_callers(house: House, caller: str) -> None:
    where, role = _CALLERS[caller]
    wrong: list[str] = []
    calls = [
        Call(operation, house.sessions[caller], tenant)
        for operation, tenant in product(house.allowed_operations(), _TENANTS)
    ]

    for (operation, _, tenant), answer in zip(calls, house.call_all(calls), strict=True):
        expected = _verdict(operation, role, where, tenant)
        if answer.status_code in {500, 502, 503} or _actual_verdict(answer) != expected:
            wrong.append(
                f"{operation.name} tenant={tenant}: {expected}, but {answer.status_code} {answer.text[:120]}"
            )

    assert wrong == []


def test_unimplemented_calls_are_refused_to_permitted_callers(house: House) -> None:
    calls: list[Call] = []
    expected: list[str] = []
    for operation, (caller, (where, role)), tenant in product(house.operations, _CALLERS.items(), _TENANTS):
        if operation.permission is None or operation.name not in _NOT_CALLED:
            continue
        if (verdict := _verdict(operation, role, where, tenant)) != "yes":
            calls.append(Call(operation, house.sessions[caller], tenant))
            expected.append(verdict)

    assert [_actual_verdict(answer) for answer in house.call_all(calls)] == expected


def test_no_call_is_answered_without_a_valid_credential(house: House) -> None:
    protected = [operation for operation in house.operations if operation.permission is not None]
    calls = list(starmap(Call, product(protected, (None, "x", "tmq_" + "a" * 43))))

    for call, answer in zip(calls, house.call_all(calls), strict=True):
        assert _actual_verdict(answer) == "nobody", call


def test_a_token_works_only_for_its_scopes(house: House) -> None:
    allowed = [(each, each.permission or "") for each in house.allowed_operations()]
    with_it = house.call_all(Call(each, house.tokens[permission, "with"]) for each, permission in allowed)
    without = house.call_all(Call(each, house.tokens[permission, "without"]) for each, permission in allowed)

    for (operation, _), has, lacks in zip(allowed, with_it, without, strict=True):
        assert _actual_verdict(lacks) == "no", operation
        # A token creates no tokens, whatever its scopes.
        assert _actual_verdict(has) == ("no" if operation.name == "addToken" and has.status_code == 403 else "yes"), (
            operation
        )
