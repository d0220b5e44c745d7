"""The pictures of docs/console.md, taken from RabbitMQ's own console. By hand, with a Chromium on the machine:

    uv run --no-sync --with playwright --with pillow python -m tests.docs.console_pictures --version 4.3
    uv run ... --version 3.10 --only queue --suffix=-3.10

A node of the tests, a worker, a producer, and an app with jobs that wait, run, are delayed and have failed. Run it
as root: the app then has a neutral host name and neutral paths.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from tests.cli.kit import command, environment
from tests.docs.blocks import ROOT
from tests.servers import RabbitMQ, eventually
from tests.servers.packages import find_chromium

_WIDTH = 1240
_PATIENCE = timedelta(seconds=60)

_APP = """\
import time

from taskmq import RetryPolicy, TaskMQ

app = TaskMQ(name="shop")


@app.task(queue="orders", retry=RetryPolicy(max_attempts=2, base="200ms"))
def charge(order: int, cents: int) -> None:
    if cents < 0:
        raise ValueError(f"order {order}: {cents} cents cannot be charged")
    time.sleep(1)


@app.task(queue="orders", priority=9)
def refund(order: int) -> None:
    time.sleep(1)


@app.task(queue="reports", timeout=7200)
def monthly(month: str, *, currency: str = "EUR") -> None: ...
"""

_FAIL = """\
import shop

for order in (7, 8, 9):
    shop.charge.send(order, -1)
"""

_PRODUCE = """\
import time

import shop

while True:
    shop.refund.send(1)
    time.sleep(2)
"""

_FILL = """\
import shop

for order in range(1, 400):
    shop.charge.send(order, 1250)
for order in range(40):
    shop.refund.send(order)
for minutes in range(1, 30):
    shop.charge.options(delay=minutes * 60).send(minutes, 999)
shop.monthly.options(tenant="north", priority=5).send("2026-10", currency="CHF")
"""


def main() -> None:
    arguments = _parser().parse_args()
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {"cluster_name": "shop"}
    node = RabbitMQ(arguments.version, name="rabbit@localhost", config=config)
    with node as server, _shop(server), _page(server) as page:
        for name, take in _PICTURES.items():
            if arguments.only in {None, name}:
                path = folder / f"console-{name}{arguments.suffix}.png"
                take(page, path)
                _shrink(path)
                print(f"{path.stat().st_size:>8,} {path}")


def _shrink(path: Path) -> None:
    """Reduce the picture to the few colours of the console."""
    image = importlib.import_module("PIL.Image")
    with image.open(path) as picture:
        picture.convert("RGB").quantize(200, dither=image.Dither.NONE).save(path, optimize=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", help="of RabbitMQ")
    parser.add_argument("--folder", default=str(ROOT / "docs" / "images"))
    parser.add_argument("--only", choices=[*_PICTURES])
    parser.add_argument("--suffix", default="", help="of the files' names")
    return parser


# Data for the pictures


@contextmanager
def _shop(server: RabbitMQ) -> Iterator[None]:
    """Run a worker on a growing queue, and everything else in the pictures."""
    with ExitStack() as resources:
        folder = resources.enter_context(tempfile.TemporaryDirectory())
        (Path(folder) / "shop.py").write_text(_APP)
        management = urlsplit(server.management_url)
        url = f"{server.url}?management=http://{management.hostname}:{management.port}"
        place = _Place(folder, environment(TASKMQ_URL=url, TASKMQ_APP="shop:app"))
        place.run(*command("topology", "apply"))
        resources.enter_context(place.running(*command("worker", "shop:app", "-Q", "orders", "-c", "4")))
        place.run(sys.executable, "-c", _FAIL)
        eventually(lambda: _ready(server, "orders.dlq") == 3, "dead letters", within=_PATIENCE)
        place.run(sys.executable, "-c", _FILL)
        resources.enter_context(place.running(sys.executable, "-c", _PRODUCE))
        tuning = ("--return-delay", "5s") if server.version.startswith("4.3") else ()
        _policies(server, place.run(*command("-o", "json", "topology", "policies", *tuning)))
        _publish(server, "taskmq.unroutable", "")
        eventually(lambda: _ready(server, "orders") > 0, "statistics", within=_PATIENCE)
        yield


class _Place:
    """A host called web-1 with the app in /srv/shop, if it can be created; else this one."""

    def __init__(self, folder: str, env: dict[str, str]) -> None:
        self._folder = folder
        self._is_ours = os.geteuid() == 0
        sources = ("/srv/taskmq", "/srv/taskmq/brokers", "/srv/shop")
        self._env = env | {"PYTHONPATH": os.pathsep.join(sources if self._is_ours else (env["PYTHONPATH"], folder))}

    def run(self, *argv: str) -> str:
        """Run a command; return its output."""
        done = subprocess.run(
            self._localise(*argv),
            cwd=self._folder,
            env=self._env,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        return done.stdout

    @contextmanager
    def running(self, *argv: str) -> Iterator[None]:
        process = subprocess.Popen(self._localise(*argv), cwd=self._folder, env=self._env)
        try:
            yield
        finally:
            process.terminate()
            process.wait(40)

    def _localise(self, *argv: str) -> tuple[str, ...]:
        if not self._is_ours:
            return argv
        return ("unshare", "--uts", "--mount", "sh", "-c", _MOVE_IN, "sh", str(ROOT), self._folder, *argv)


_MOVE_IN = """
set -e
hostname web-1
mount -t tmpfs none /srv
mkdir /srv/taskmq /srv/shop
mount --bind "$1" /srv/taskmq
mount --bind "$2" /srv/shop
cd /srv/shop
shift 2
exec "$@"
"""


def _policies(server: RabbitMQ, printed: str) -> None:
    for instruction in json.loads(printed):
        if (request := instruction["request"]) is not None:
            server.http(request["method"], request["path"], request["body"])


def _publish(server: RabbitMQ, queue: str, payload: str) -> None:
    body = {"properties": {}, "routing_key": queue, "payload": payload, "payload_encoding": "string"}
    server.http("POST", "/api/exchanges/%2F/amq.default/publish", body)


def _ready(server: RabbitMQ, queue: str) -> int:
    found = cast("dict[str, Any]", server.http("GET", f"/api/queues/%2F/{queue}"))
    return int(found.get("messages_ready", 0))


@contextmanager
def _page(server: RabbitMQ) -> Iterator[Any]:
    """Open a page of the console, logged in."""
    # Not a dependency of the project.
    playwright = importlib.import_module("playwright.sync_api")
    url = urlsplit(server.management_url)
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": _WIDTH, "height": 800})
        page.goto(f"http://{url.hostname}:{url.port}/")
        page.fill("input[name=username]", str(url.username))
        page.fill("input[name=password]", str(url.password))
        page.click("input[type=submit]")
        page.wait_for_selector("#tabs")
        # Long enough for two rounds of statistics.
        time.sleep(11)
        yield page
        browser.close()


def _open(page: Any, fragment: str, wait_for: str) -> None:
    page.evaluate("fragment => { window.location.hash = fragment }", fragment)
    page.wait_for_selector(wait_for)
    page.wait_for_timeout(1500)


def _expand(page: Any, title: str, what: str) -> None:
    """Open a section; the console remembers open ones."""
    if not page.locator(what).first.is_visible():
        page.click(f"h2:has-text('{title}')")
    page.wait_for_timeout(1000)


def _picture(page: Any, path: Path, selector: str = "#main", *, top: int = 0) -> None:
    """Take a picture from `top` pixels down to the end of the selected element."""
    page.evaluate("window.scrollTo(0, 0)")
    box = page.locator(selector).first.bounding_box()
    bottom = int(box["y"] + box["height"] + 12)
    page.set_viewport_size({"width": _WIDTH, "height": bottom})
    page.wait_for_timeout(300)
    page.screenshot(path=path, clip={"x": 0, "y": top, "width": _WIDTH, "height": bottom - top})


def _connections(page: Any, path: Path) -> None:
    _open(page, "#/connections", "#main table.list")
    _picture(page, path)


def _connection(page: Any, path: Path) -> None:
    _open(page, "#/connections", "#main table.list")
    page.click("#main table.list tr:has-text('consume') a")
    page.wait_for_selector("text=Client properties")
    _expand(page, "Client properties", "text=connection_name")
    _picture(page, path)


def _queues(page: Any, path: Path) -> None:
    _open(page, "#/queues", "#main table.list")
    _picture(page, path)


def _queue(page: Any, path: Path) -> None:
    _open(page, "#/queues/%2F/orders", "h2:has-text('Consumers')")
    _expand(page, "Consumers", ".section-visible th:has-text('Consumer tag'), th:has-text('Consumer tag')")
    _picture(page, path)


def _message(queue: str) -> Callable[[Any, Path], None]:
    def take(page: Any, path: Path) -> None:
        _open(page, f"#/queues/%2F/{queue}", "h2:has-text('Get messages')")
        _expand(page, "Get messages", "input[value='Get Message(s)']")
        page.click("input[value='Get Message(s)']")
        page.wait_for_selector("#msg-wrapper table")
        page.wait_for_timeout(1000)
        page.evaluate("window.scrollTo(0, 0)")
        _picture(page, path, "#msg-wrapper", top=int(page.locator("#msg-wrapper").bounding_box()["y"]))

    return take


def _policies_page(page: Any, path: Path) -> None:
    _open(page, "#/policies", "#main table.list")
    _picture(page, path)


_PICTURES: dict[str, Callable[[Any, Path], None]] = {
    "connections": _connections,
    "connection": _connection,
    "queues": _queues,
    "queue": _queue,
    "message": _message("reports"),
    "dead-letter": _message("orders.dlq"),
    "policies": _policies_page,
}


if __name__ == "__main__":
    main()
