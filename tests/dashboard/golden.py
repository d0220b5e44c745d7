"""Snapshots of the pages, as pictures and as accessibility trees, in files beside the tests. Renew them by hand:

.venv/bin/python -m tests.dashboard.golden

Read the difference before you commit it: users will see it.
"""

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from PIL import Image, ImageChops
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.examples import Case, show_examples
from tests.dashboard.kit import Eyes, Served, browsing, serving

PICTURES: Final = {
    "overview": "",
    "jobs": "jobs",
    "job": "jobs/order-17",
    "run": "runs/order-17",
    "schedules": "schedules",
    "metrics": "metrics",
}
TREES: Final = {
    **PICTURES,
    "bulk": "bulk",
    "task": "tasks/order-17",
    "runs": "runs",
    "workflows": "workflows",
    "workflow": "workflows/order-17",
    "queues": "queues",
    "workers": "workers",
    "nodes": "nodes",
    "node": "nodes/order-17",
    "pools": "pools",
    "quotas": "quotas",
    "schedule": "schedules/order-17",
    "dead-letters": "dead-letters",
    "failures": "failures",
    "message": "failures/order-17?queue=images",
    "logs": "logs",
    "alerts": "alerts",
    "audit": "audit",
    "system": "system",
    "users": "users",
    "account": "account",
}
_FOLDER: Final = Path(__file__).parent / "golden"
# Shortly after the times in the examples.
_NOW: Final = "2027-01-30T18:00:00Z"
_CASE: Final = Case("one", width=1100)
# Fonts differ between machines; these are installed with the browser.
_FONTS: Final = """
* { font-family: "DejaVu Sans" !important; animation: none !important; transition: none !important; }
code, pre, kbd, textarea, td.line { font-family: "DejaVu Sans Mono" !important; }
"""
# Antialiasing differs between browser versions: squares of that many pixels are compared by their mean colours.
_SQUARE: Final = 6
_LOOKS_ALIKE: Final = 40


@contextmanager
def looking(browser: Browser, served: Served) -> Iterator[Eyes]:
    """Open a browser at a fixed time and place."""
    options: dict[str, Any] = {"timezone_id": "Europe/Paris", "locale": "en-GB", "bypass_csp": True}
    with show_examples(browser, served, _CASE, **options) as eyes:
        eyes.page.clock.set_fixed_time(_NOW)
        yield eyes


def tree_of(eyes: Eyes, view: str) -> str:
    """Return the accessibility tree of a page."""
    tree = _open_page(eyes, view).locator("#root").aria_snapshot()
    return f"{tree.replace(eyes.url, 'http://server')}\n"


def picture_of(eyes: Eyes, view: str) -> Image.Image:
    """Return a picture of a page."""
    page = _open_page(eyes, view)
    page.add_style_tag(content=_FONTS)
    page.evaluate("() => document.fonts.ready")
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def _open_page(eyes: Eyes, view: str) -> Page:
    page = eyes.open(view).page
    # The examples' stream of events ends at once, which takes a moment to show.
    expect(page.get_by_text("reconnecting")).to_be_visible()
    if not view:
        # What changed is loaded after the first view.
        expect(page.get_by_text("Version 2027.01.30-1")).to_be_visible()
    return page


def different_part(one: Image.Image, other: Image.Image) -> float:
    """Return the fraction of differing area of two pictures; 1 if their sizes differ."""
    if one.size != other.size:
        return 1.0
    size = (one.width // _SQUARE, one.height // _SQUARE)
    small = [picture.convert("RGB").resize(size, Image.Resampling.BOX) for picture in (one, other)]
    bands = ImageChops.difference(*small).split()
    largest = ImageChops.lighter(ImageChops.lighter(bands[0], bands[1]), bands[2])
    return sum(largest.histogram()[_LOOKS_ALIKE:]) / (size[0] * size[1])


def tree_file(name: str) -> Path:
    """Return the file of a page's tree."""
    return _FOLDER / f"{name}.yml"


def picture_file(name: str) -> Path:
    """Return the file of a page's picture."""
    return _FOLDER / f"{name}.png"


def main() -> None:
    _FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), development=True) as served,
        browsing() as browser,
        looking(browser, served) as eyes,
    ):
        for name, view in TREES.items():
            tree_file(name).write_text(tree_of(eyes, view), encoding="utf-8")
        for name, view in PICTURES.items():
            picture = picture_of(eyes, view)
            # There are few colours.
            few = picture.quantize(64, dither=Image.Dither.NONE)
            few.save(picture_file(name), optimize=True)
            print(f"{picture_file(name).stat().st_size:,} {picture_file(name)}, {different_part(picture, few)}")


if __name__ == "__main__":
    main()
