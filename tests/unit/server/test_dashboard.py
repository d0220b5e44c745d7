"""The dashboard's files, and the development server."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from httpx import Response
from litestar.testing import TestClient
from litestar.types import Receive, Scope, Send

from taskmq import TaskMQ
from taskmq.errors import InvalidSetting
from taskmq.server import ServerSettings, build
from taskmq.server.dashboard.files import dashboard_files
from tests.unit.app_kit import new_store, new_url
from tests.unit.server.kit import Site, define, open_site

_STATIC = Path(__file__).parents[3] / "taskmq" / "server" / "dashboard" / "static"


def _get(site: Site, path: str, **headers: str) -> Response:
    return site.client.get(path, headers=headers, follow_redirects=False)


def test_the_page_names_existing_files_that_are_cached_until_they_change(site: Site) -> None:
    page = _get(site, "/ui/")
    names = re.findall(r'(?:src|href)="(static/[^"]+)"', page.text)

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    assert len(names) >= 10
    for name in names:
        file = _get(site, f"/ui/{name}")
        assert file.status_code == 200, name
        assert "immutable" in file.headers["cache-control"]
        assert file.headers["content-encoding"] == "gzip"


def test_scripts_are_sent_without_comment_lines_and_keep_their_line_numbers() -> None:
    source = (_STATIC / "lib" / "parts.js").read_bytes().splitlines()
    sent = dashboard_files().by_path["lib/parts.js"].content.splitlines()

    number = next(at for at, line in enumerate(source) if line.startswith(b"export function Head("))
    assert sent[number].startswith(b"export function Head({title, ")
    assert source[number - 1].endswith(b"*/")
    assert sent[number - 1] == b""


def test_scripts_and_styles_are_sent_without_spaces_that_mean_nothing() -> None:
    files = dashboard_files().by_path

    assert [path for path, file in files.items() if b"\n " in file.content] == []
    assert [path for path, file in files.items() if path.endswith(".js") and b" => " in file.content] == []
    assert b".p4{display:none;}" in files["style.css"].content


def test_no_text_of_a_script_loses_spaces() -> None:
    example = "a / 2; const b = `x ${{ c: `${d} = y`, e: '\\'' }} : z`; return /[/] => /.test(b) / 2; // it's"
    assert [*_texts(example)] == ["x ${", "${", " = y`", r"'\''", " : z`", "/[/] => /"]

    found = 0
    for path, file in dashboard_files().by_path.items():
        if path.endswith(".js"):
            texts = [*_texts(re.sub("^ +", "", (_STATIC / path).read_text(), flags=re.MULTILINE))]
            assert [*_texts(file.content.decode())] == texts, path
            found += len(texts)
    assert found > 5_000


def test_a_page_of_another_version_finds_no_files(site: Site) -> None:
    digest = dashboard_files().digest

    assert _get(site, f"/ui/static/{digest}/main.js").status_code == 200
    assert _get(site, "/ui/static/0123456789abcdef/main.js").status_code == 404
    assert _get(site, f"/ui/static/{digest}/../../../settings.py").status_code == 404
    assert _get(site, f"/ui/static/{digest}/absent.js").status_code == 404


def test_inline_and_foreign_content_is_forbidden(site: Site) -> None:
    policy = _get(site, "/ui/").headers["content-security-policy"]
    sources = "".join(path.read_text() for path in _STATIC.rglob("*") if path.suffix in {".js", ".html", ".css"})

    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert re.findall(r"dangerouslySetInnerHTML|innerHTML|\beval\(|new Function|<script>|\son\w+=\"", sources) == []
    assert (
        re.findall(r"https?://(?!www\.w3\.org/2000/svg|hooks\.example\.com)", sources.replace("http://127.0.0.1", ""))
        == []
    )


def test_a_browser_without_gzip_gets_uncompressed_files(site: Site) -> None:
    answer = _get(site, "/ui/", **{"accept-encoding": "identity"})

    assert "content-encoding" not in answer.headers
    assert answer.text.startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("path", "leads_to"), [("/", "ui/"), ("/ui", "ui/"), ("/deep/taskmq", "taskmq/ui/"), ("/deep/taskmq/", "ui/")]
)
def test_unknown_addresses_lead_to_the_dashboard_by_relative_paths(tmp_path: Path, path: str, leads_to: str) -> None:
    with open_site(tmp_path, ServerSettings(root_path="/deep/taskmq")) as site:
        answer = _get(site, path)

        assert (answer.status_code, answer.headers["location"]) == (307, leads_to)


def test_all_vendored_files_have_a_licence() -> None:
    vendor = _STATIC / "vendor"
    listed = (vendor / "README.md").read_text()

    for path in vendor.glob("*.mjs"):
        (line,) = [line for line in listed.splitlines() if line.startswith(f"| `{path.name}`")]
        (licence,) = re.findall(r"`(\w+\.LICENSE)`", line) or [f"{path.stem}.LICENSE"]
        assert (vendor / licence).is_file(), path.name


_COMMENT = re.compile(r"\s+|//[^\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""")
_PATTERN = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/")
_TEMPLATE = re.compile(r"(?:\\.|(?!\$\{)[^`\\])*(?:`|\$\{)", re.DOTALL)
_OTHER = re.compile(r"\w+|[^\w\s]")
# A slash after one of these begins a regular expression; any other divides.
_BEFORE_PATTERNS = {*"(,=:[!&|?{};+-*%<>~^", "", "return", "typeof", "case", "in", "of"}


def _texts(script: str) -> Iterator[str]:
    """Yield the strings, the regular expressions and the parts of templates of a script."""
    at, before, open_braces = 0, "", [0]
    while at < len(script):
        if comment := _COMMENT.match(script, at):
            at = comment.end()
            continue
        text = _STRING.match(script, at) or (_PATTERN.match(script, at) if before in _BEFORE_PATTERNS else None)
        if not text:
            found = _OTHER.match(script, at)
            assert found
            at, before = found.end(), found[0]
            open_braces[-1] += {"{": 1, "}": -1}.get(before, 0)
            if before != "`" and open_braces[-1] >= 0:
                continue
            if before == "}":
                open_braces.pop()
            text = _TEMPLATE.match(script, at)
            assert text
            if text[0].endswith("${"):
                open_braces.append(0)
        yield text[0]
        at, before = text.end(), text[0][-1]
    assert open_braces == [0]


def _asked_from(address: str, app: TaskMQ) -> "TestClient[Any]":
    """Return a client of a development server at that address."""
    edge = build(app, settings=ServerSettings(development=True))

    async def call_from(scope: Scope, receive: Receive, send: Send) -> None:
        await edge(cast("Scope", {**scope, "client": (address, 50_000)}), receive, send)

    return TestClient(call_from, base_url="http://127.0.0.1:8787")


@pytest.fixture(scope="module")
def developer() -> Iterator["TestClient[Any]"]:
    """Serve a development server to a browser of the same machine."""
    app = TaskMQ(new_url(), store=new_store())
    define(app)
    with _asked_from("127.0.0.1", app) as client:
        yield client


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 201),
        ({"host": "localhost:8787"}, 201),
        ({"origin": "http://127.0.0.1:8787"}, 201),
        ({"sec-fetch-site": "same-origin"}, 201),
        ({"sec-fetch-site": "cross-site"}, 401),
        ({"sec-fetch-site": "same-site"}, 401),
        ({"origin": "http://evil.example"}, 401),
        ({"origin": "http://127.0.0.1:9999"}, 401),
        ({"origin": "null"}, 401),
        ({"host": "evil.example:8787"}, 401),
        # Through a proxy on this machine.
        ({"x-forwarded-for": "127.0.0.1, ::1"}, 201),
        ({"x-forwarded-for": "203.0.113.9, 127.0.0.1"}, 401),
    ],
)
def test_development_needs_no_sign_in_and_other_sites_are_still_refused(
    developer: "TestClient[Any]", headers: dict[str, str], status: int
) -> None:
    answer = developer.post("/api/v1/jobs", json={"job_type": "report"}, headers=headers)

    assert answer.status_code == status, answer.text


def test_another_machine_is_refused_by_a_development_server() -> None:
    app = TaskMQ(new_url(), store=new_store())
    with _asked_from("192.0.2.7", app) as client:
        assert client.get("/api/v1/jobs").status_code == 401
    with pytest.raises(InvalidSetting, match="without sign-in"):
        ServerSettings(development=True, host="0.0.0.0")


def test_a_server_shows_its_purpose(tmp_path: Path) -> None:
    with open_site(tmp_path, ServerSettings(environment="production", read_only=True)) as site:
        found = site("GET", "/server", by="acme-viewer").json()

    assert (found["environment"], found["is_read_only"], found["is_development"]) == ("production", True, False)
