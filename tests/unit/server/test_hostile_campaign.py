"""Requests of a malicious client: no answer is a server error, none leaks, and no job is created unseen.

Each request is a call of the API's own description with hostile content in its path, query, headers and body:
sizes, encodings, foreign ids, deep and wide JSON, and texts with a meaning in SQL, templates, shells and paths.

`TASKMQ_TEST_HOSTILE_REQUESTS` is their number, 2,500 by default; `TASKMQ_TEST_HOSTILE_SEED` selects them.
"""

import json
import os
import random
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pytest
from httpx import Response

from tests.unit.server.kit import Site
from tests.unit.server.test_hostile import TEXTS, VALUES

_REQUESTS = int(os.environ.get("TASKMQ_TEST_HOSTILE_REQUESTS", "2500"))
_SEED = int(os.environ.get("TASKMQ_TEST_HOSTILE_SEED", "20"))
_SECRET: Final = "canary-8f1d6c"
# A stream does not end, and a login is expensive by design.
_LEFT_OUT: Final = {
    "followEvents", "logIn", "logInCompat", "changePassword", "addUser", "changeUser", "logOut",
    "logOutCompat",
}  # fmt: skip
_MORE_TEXTS: Final = [
    "' OR '1'='1", "1; SELECT pg_sleep(9)--", '" UNION SELECT * FROM taskmq.token --', "$(id)", "`id`", "%s%s%n",
    "{{config}}", "#{7*7}", "<%= 7 %>", "${7*7}", "..%2f..%2f", "..\\..\\", "/etc/passwd", "file:///etc/passwd",
    "http://169.254.169.254/", "\u0000", "%00", "\x7f", "\u2028", "a\u0300" * 500, "order-17", "@other:order-17",
    "@acme:order-17", "*", "%", "_", "[", "(", "task:", "task:*", "-" * 4_000, "(" * 2_000, "id:" * 500,
]  # fmt: skip
_TEXTS: Final = [text for text in (*TEXTS, *_MORE_TEXTS) if isinstance(text, str)]
_HEADERS: Final = [
    {"Content-Type": "application/xml"}, {"Content-Type": "application/json; charset=utf-7"},
    {"Content-Encoding": "gzip"}, {"If-Match": '*, "1"'}, {"If-Match": '"' + "9" * 30 + '"'},
    {"Idempotency-Key": "k"}, {"Idempotency-Key": "\x01"}, {"X-Forwarded-For": "127.0.0.1"},
    {"X-HTTP-Method-Override": "DELETE"}, {"X-Request-ID": "a" * 300}, {"Accept": "text/html"}, {"Host": "evil"},
    {"Origin": "https://evil"}, {"Cookie": "taskmq=x; __Host-taskmq=y"}, {"Last-Event-ID": "9" * 50},
    {"Range": "bytes=0-1"}, {"Transfer-Encoding": "identity"}, {"Authorization": "Bearer tmq_" + "a" * 43},
    {"If-None-Match": "*"},
]  # fmt: skip
_BOMBS: Final = [
    b"[" * 20_000, b'{"a":' * 20_000, b"{" + b",".join(b'"k%d":1' % n for n in range(5_000)) + b"}",
    b"[" + b",".join([b"{}"] * 1_001) + b"]", b'"' + b"\\u0000" * 5_000 + b'"', b"1" * 50_000, b"1e" + b"9" * 400,
    b'{"a":1,"a":2}', b"\xef\xbb\xbf{}", "{}".encode("utf-16"), b'{"job_type":"\xc0\xae"}', b"nul",
    b"x" * ((1 << 20) + 1),
]  # fmt: skip


class _Call(NamedTuple):
    name: str
    method: str
    path: str
    query: list[str]
    fields: list[str]


def _calls(document: dict[str, Any]) -> list[_Call]:
    schemas = document["components"]["schemas"]
    found: list[_Call] = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            names = json.dumps(body)
            fields = [
                field
                for name, schema in schemas.items()
                if f'/{name}"' in names
                for field in schema.get("properties", {})
            ]
            query = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
            found.append(_Call(operation["operationId"], method.upper(), path, query, fields))
    return found


class _Enemy:
    """Sends requests derived from a seed."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site = site
        self.chance = random.Random(seed)
        self.calls = [
            call for call in _calls(site("GET", "/api/openapi.json", by=None).json()) if call.name not in _LEFT_OUT
        ]

        (self.submit,) = [call for call in self.calls if call.name == "submitJobs"]

    def text(self) -> str:
        return self.chance.choice(_TEXTS)

    def value(self) -> Any:
        return self.chance.choice(VALUES) if self.chance.random() < 0.5 else self.text()

    def send(self) -> tuple[str, Response]:
        """Send one request of an admin of tenant `other`, or of an anonymous client; return it and its answer."""
        chance = self.chance
        # Enough of them can become a job.
        call = self.submit if chance.random() < 0.1 else chance.choice(self.calls)
        path = call.path
        while "{" in path:
            begin, _, rest = path.partition("{")
            path = begin + _quote_text(self.text()) + rest.partition("}")[2]
        query = [(name, self.text()) for name in call.query if chance.random() < 0.25 and name != "within"]
        if "within" in call.query:
            # There are no workers that could answer.
            query.append(("within", "0.01"))
        if chance.random() < 0.05:
            query.append((self.text()[:200], self.text()[:200]))
        asked = "&".join(f"{_quote_text(name)}={_quote_text(text)}" for name, text in query)
        headers = dict(chance.choice(_HEADERS)) if chance.random() < 0.3 else {}
        by = None if chance.random() < 0.1 else chance.choice(["other-admin", "other-admin", "other-admin", "nobody"])
        content: bytes | None = None
        if call.method in {"POST", "PUT", "PATCH"}:
            headers.setdefault("Content-Type", "application/json")
            content = chance.choice(_BOMBS) if chance.random() < 0.15 else self._body(call)
        answer = self.site(
            call.method, f"{path}?{asked}" if asked else path, by=by, content=content,
            headers={name: value.encode("latin-1", "replace") for name, value in headers.items()},
        )  # fmt: skip
        return f"{call.method} {path[:200]}?{asked[:200]} {headers} {(content or b'')[:200]!r}", answer

    def _body(self, call: _Call) -> bytes:
        chance = self.chance
        some = chance.sample(call.fields, min(len(call.fields), chance.randrange(1, 5))) if call.fields else []
        body: Any = {field: self.value() for field in some}
        if call.name in {"submitJobs", "createJobCompat"} and chance.random() < 0.7:
            body = {**(body if chance.random() < 0.5 else {}), "job_type": "data_processing"}
            body["payload"] = {"key": self.text()}
        if chance.random() < 0.1:
            body[self.text()[:100]] = self.value()
        if chance.random() < 0.1:
            body = [body] * chance.randrange(1, 20)
        return json.dumps(body).encode()


@pytest.mark.nightly("tests/unit/server/test_hostile.py")
def test_a_hostile_client_gets_no_server_error_no_secret_and_no_foreign_job(site: Site) -> None:
    site.submit(payload={"key": _SECRET}, description=_SECRET, labels={"team": _SECRET})
    site("PUT", f"/definitions/{_SECRET}", {"task": "data_processing"})
    site("PUT", f"/schedules/{_SECRET}", {"task": "data_processing", "every": 3600})
    before = _count(site, "acme-admin")
    enemy = _Enemy(site, _SEED)
    answered: set[str] = set()
    repeated = 0
    wrong: list[str] = []

    for _ in range(_REQUESTS):
        said, answer = enemy.send()
        if answer.status_code >= 500 and not any(f'"code":"{code}"' in answer.text for code in _NOT_OURS):
            wrong.append(f"{answer.status_code} {said}: {answer.text[:200]}")
        if _SECRET in answer.text or "Traceback" in answer.text or 'File "' in answer.text:
            wrong.append(f"leaks {said}: {answer.text[:200]}")
        if answer.request.method != "GET":
            answered |= _named_jobs(answer)
            repeated += _count_repeated(answer)

    assert wrong == []
    # Foreign objects are unchanged, and every new job was named in an answer.
    assert _count(site, "acme-admin") == before
    assert _count(site, "other-admin") > 0
    assert len(_unseen(site, answered)) <= repeated
    assert site("GET", "/jobs/order-17?expand=payload").json()["payload"] == {"key": _SECRET}
    assert site("GET", f"/schedules/{_SECRET}").status_code == 200
    assert site("GET", "/health/ready").status_code == 200


# The answer of a server whose broker or state does not support the call.
_NOT_OURS: Final = {"unsupported", "broker_unavailable"}


def _quote_text(text: str) -> str:
    return quote(text.encode(errors="surrogatepass"), safe="")


def _count(site: Site, caller: str) -> int:
    counts: int = site("GET", "/jobs/count", by=caller).json()["count"]
    return counts


def _unseen(site: Site, answered: set[str]) -> list[dict[str, Any]]:
    """Return the jobs of tenant `other` that no answer has named."""
    jobs: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = site("GET", f"/jobs?limit=200&cursor={cursor}", by="other-admin").json()
        jobs += page["items"]
        if page["next"] is None:
            return [job for job in jobs if not {job["job_id"], job["id"]} & answered]
        cursor = page["next"]


def _named_jobs(answer: Response) -> set[str]:
    """Return the jobs named by the answer to a change."""
    if answer.status_code not in {200, 201} or "json" not in answer.headers["content-type"]:
        return set()
    found = answer.json()
    items = found.get("items", []) if isinstance(found, dict) else []
    return {
        str(one[name])
        for one in [found, *items]
        for name in ("job_id", "id")
        if isinstance(one, dict) and one.get(name) is not None
    }


def _count_repeated(answer: Response) -> int:
    """Return the number of jobs that a bulk has run again, which it does not name."""
    found = answer.json() if answer.status_code == 200 and "json" in answer.headers["content-type"] else None
    return found["done"] if isinstance(found, dict) and found.get("dry_run") is False else 0
