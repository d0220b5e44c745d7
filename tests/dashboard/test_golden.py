"""Pages stay the same in pictures and accessibility trees until someone renews them."""

import difflib
from collections.abc import Iterator

import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import Browser

from tests.dashboard.golden import (
    PICTURES,
    TREES,
    different_part,
    looking,
    picture_file,
    picture_of,
    tree_file,
    tree_of,
)
from tests.dashboard.kit import Eyes, Served

_RENEW = "if that is meant: .venv/bin/python -m tests.dashboard.golden"
# A line of text shifted by one line makes five times as much.
_MOST = 0.004
_AT_NIGHT = pytest.mark.nightly(
    "tests/dashboard/test_golden.py::test_a_screen_reader_finds_the_same_content_as_before"
)
# The gate compares the main pages.
_PAGES = [*PICTURES, *(pytest.param(name, marks=_AT_NIGHT) for name in TREES if name not in PICTURES)]


@pytest.fixture(scope="module")
def eyes(browser: Browser, site: Served) -> Iterator[Eyes]:
    with looking(browser, site) as opened:
        yield opened


@pytest.mark.parametrize("name", _PAGES)
def test_a_screen_reader_finds_the_same_content_as_before(eyes: Eyes, name: str) -> None:
    kept = tree_file(name).read_text(encoding="utf-8")

    found = tree_of(eyes, TREES[name])

    changes = difflib.unified_diff(kept.splitlines(), found.splitlines(), "before", "now", lineterm="")
    assert kept == found, "\n".join([f"{name} has changed; {_RENEW}", *changes])


@pytest.mark.parametrize("name", PICTURES)
def test_a_page_looks_the_same_as_before(eyes: Eyes, name: str) -> None:
    with Image.open(picture_file(name)) as kept:
        part = different_part(kept, picture_of(eyes, PICTURES[name]))

    assert part <= _MOST, f"{part:.2%} of {name} looks different; {_RENEW}"


def test_a_moved_line_is_a_difference_and_antialiasing_is_not() -> None:
    def page(*, lower: int = 0, ink: int = 0) -> Image.Image:
        picture = Image.new("RGB", (1100, 800), "white")
        pen = ImageDraw.Draw(picture)
        for line in range(20):
            pen.rectangle((40, 40 + 36 * line + lower, 700, 50 + 36 * line + lower), fill=(ink, ink, ink))
        return picture

    assert different_part(page(), page(ink=30)) == 0
    assert different_part(page(), page(lower=18)) > 0.1
    assert different_part(page(), Image.new("RGB", (1100, 700))) == 1
