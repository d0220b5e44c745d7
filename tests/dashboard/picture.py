"""The picture of the dashboard in the README, taken from `taskmq demo --serve`. By hand:

.venv/bin/python -m tests.dashboard.picture
"""

import importlib
import re
import tempfile
from datetime import timedelta
from pathlib import Path

import httpx
from playwright.sync_api import ViewportSize, expect

from tests.cli.kit import Started
from tests.dashboard.kit import Eyes, browsing
from tests.docs.blocks import ROOT
from tests.servers import eventually

_PICTURE = ROOT / "docs" / "images" / "dashboard.png"
_SIZE: ViewportSize = {"width": 1180, "height": 800}
_PATIENCE = timedelta(seconds=90)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Started(Path(folder), "demo", "--serve", "--port", "0") as demo:
        demo.says("taskmq server")
        (address,) = re.findall(r"at (http://[0-9.:]+)/", demo.said)
        eventually(lambda: _count(address, "status:failed") >= 3, "some failures", within=_PATIENCE)
        _take(address)
    _shrink(_PICTURE)
    print(f"{_PICTURE.stat().st_size:,} {_PICTURE}")


def _count(address: str, which: str) -> int:
    found = httpx.get(f"{address}/api/v1/jobs/count", params={"filter": which})
    return int(found.json()["count"])


def _take(address: str) -> None:
    with browsing() as browser:
        page = browser.new_context(viewport=_SIZE, color_scheme="light").new_page()
        eyes = Eyes(page, address).open()
        # The slowest note: it queries workers.
        expect(page.locator(".tile").filter(has_text="…")).to_have_count(0)
        eyes.check()
        page.screenshot(path=_PICTURE)


def _shrink(path: Path) -> None:
    """Reduce the picture to few colours."""
    image = importlib.import_module("PIL.Image")
    with image.open(path) as picture:
        picture.convert("RGB").quantize(128, dither=image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
