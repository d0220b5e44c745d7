"""docs/asvs.md has every point of level 1, with a test or the reason for having none."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from httpx import Response

from tests.docs.blocks import ROOT
from tests.unit.server.kit import Site, open_site

_PAGE = ROOT / "docs" / "asvs.md"
_ROW = re.compile(r"^\| (?P<point>\d+\.\d+\.\d+) \| (?P<text>[^|]+) \| (?P<test>[^|]+) \|$", re.MULTILINE)
_TEST = re.compile(r"`[\w/]+\.py::\w+`")
_LEVEL_1 = """
    1.2.1 1.2.2 1.2.3 1.2.4 1.2.5 1.3.1 1.3.2 1.5.1 2.1.1 2.2.1 2.2.2 2.3.1 3.2.1 3.2.2 3.3.1 3.4.1 3.4.2 3.5.1 3.5.2
    3.5.3 4.1.1 4.4.1 5.2.1 5.2.2 5.3.1 5.3.2 6.1.1 6.2.1 6.2.2 6.2.3 6.2.4 6.2.5 6.2.6 6.2.7 6.2.8 6.3.1 6.3.2 6.4.1
    6.4.2 7.2.1 7.2.2 7.2.3 7.2.4 7.4.1 7.4.2 8.1.1 8.2.1 8.2.2 8.3.1 9.1.1 9.1.2 9.1.3 9.2.1 10.4.1 10.4.2 10.4.3
    10.4.4 10.4.5 11.3.1 11.3.2 11.4.1 12.1.1 12.2.1 12.2.2 13.4.1 14.2.1 14.3.1 15.1.1 15.2.1 15.3.1
    """


# Points of level 2 about a client of a provider.
_PROVIDER = "6.8.1 6.8.2 10.1.2 10.2.1 10.5.1 10.5.2 10.5.3 10.5.4 10.5.5"


def _rows() -> dict[str, str]:
    return {found["point"]: found["test"] for found in _ROW.finditer(_PAGE.read_text())}


def test_every_point_of_level_one_has_a_row() -> None:
    points = _LEVEL_1.split()

    assert list(_rows()) == [*points, *_PROVIDER.split()]
    assert len(points) == 70


def test_every_row_names_tests_or_a_reason_for_having_none() -> None:
    for point, text in _rows().items():
        assert _TEST.search(text) or text.startswith("none: "), point


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_site(tmp_path) as opened:
        yield opened


def _some(site: Site) -> list[Response]:
    origin = {"Origin": "https://evil.example"}
    return [
        site("GET", "/jobs", headers=origin),
        site("POST", "/jobs", {"unreadable": True}, headers=origin),
        site("GET", "/jobs", by=None, headers=origin),
        site("GET", "/nowhere", headers=origin),
        site("OPTIONS", "/jobs", headers={**origin, "Access-Control-Request-Method": "POST"}),
        site("GET", "/health/live", by=None, headers=origin),
        site("GET", "/api/openapi.json", by=None, headers=origin),
    ]


def test_no_other_origin_is_allowed(site: Site) -> None:
    for answer in _some(site):
        assert [name for name in answer.headers if name.startswith("access-control-")] == []


def test_every_answer_has_a_content_type(site: Site) -> None:
    for answer in _some(site):
        if answer.content:
            kind = answer.headers["content-type"].partition(";")[0]
            assert kind == ("application/json" if answer.status_code < 300 else "application/problem+json")
            answer.json()


@pytest.mark.parametrize("path", [".git/config", "../../pyproject.toml", "%2e%2e/%2e%2e/etc/passwd", "static/x.js"])
def test_no_files_are_served(site: Site, path: str) -> None:
    for where in (f"/{path}", f"/api/{path}", f"/api/v1/{path}"):
        assert site.client.get(where, headers={"Authorization": "Bearer all-admin"}).status_code == 404


def test_browsers_are_told_to_stay_with_https_if_they_used_it(site: Site) -> None:
    secure, plain = (site.client.get(f"{scheme}://testserver/health/live") for scheme in ("https", "http"))

    assert secure.headers["strict-transport-security"] == "max-age=31536000"
    assert "strict-transport-security" not in plain.headers


def test_a_credential_in_the_url_is_ignored(site: Site) -> None:
    for name in ("token", "access_token", "authorization", "session", "taskmq"):
        assert site("GET", f"/jobs?{name}=acme-admin", by=None).status_code == 401
