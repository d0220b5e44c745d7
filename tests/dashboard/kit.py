"""A served app, and a browser on its dashboard; forbidden behaviour of a page is an error of the test."""

import asyncio
import json
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Self
from uuid import uuid4

import httpx
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Route, ViewportSize, expect, sync_playwright

from taskmq import TaskMQ
from taskmq.access import IdentityAdministration, PasswordHasher
from taskmq.contracts.identity import Actor
from taskmq.model.identity import Membership, Role
from taskmq.scheduler import Scheduler
from taskmq.scheduler.alerts.settings import AlertSettings
from taskmq.server import ServerSettings
from taskmq.server.process import ServerProcess
from taskmq.worker import Worker, WorkerConfig
from tests.servers.errors import ServerUnavailable
from tests.servers.packages import find_chromium
from tests.unit.app_kit import new_file_store
from tests.unit.server.kit import build_served

PASSWORD = "correct horse battery"
WIDE: Final[ViewportSize] = {"width": 1280, "height": 900}
_PATIENCE = 40_000
# The page aborts a request that it no longer needs.
_EXPECTED = re.compile(r"net::ERR_ABORTED")
_AXE_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def a_job(name: str, **more: object) -> dict[str, object]:
    """Return the submission of a job with a future time."""
    return {
        "job_type": "billing.charge",
        "job_id": name,
        "payload": {"account": "ann", "cents": 250},
        "schedule_time": "2099-01-31T09:00:00Z",
        **more,
    }


class Served:
    """A served app."""

    def __init__(self, url: str, app: TaskMQ, loop: asyncio.AbstractEventLoop, *, twin: Callable[[], TaskMQ]) -> None:
        self.url = url
        self.app = app
        # The same app once more, for a process beside the server.
        self.twin = twin
        self._loop = loop
        self._started: list[Future[object]] = []
        self.api = httpx.Client(base_url=f"{url}/api/v1", timeout=30)
        # The names of document 000 are served beside the API.
        self.outside = httpx.Client(base_url=url, timeout=30)

    def run(self, doing: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine on the loop of the served app: a browser's tests have their own loop."""
        asyncio.run_coroutine_threadsafe(doing, self._loop).result(30)

    def begin(self, doing: Coroutine[Any, Any, object]) -> Future[object]:
        """Start a coroutine on the loop of the served app; the caller waits for its end."""
        return asyncio.run_coroutine_threadsafe(doing, self._loop)

    def start(self, doing: Coroutine[Any, Any, object]) -> None:
        """Start a coroutine on the loop of the served app; the server cancels it at its stop. It must not fail."""
        self._started.append(self.begin(doing))

    def call(self, doing: Callable[[], None]) -> None:
        """Let the loop of the served app call a function."""
        self._loop.call_soon_threadsafe(doing)

    def close(self) -> None:
        """End all started coroutines, and the connections."""
        self.api.close()
        self.outside.close()
        for future in self._started:
            if not future.cancel():
                future.result()

    def submit(self, *bodies: dict[str, Any], tenant: str | None = None) -> list[dict[str, Any]]:
        """Submit jobs; return the answer for each."""
        answer = self.api.post("/jobs", json=list(bodies), params={} if tenant is None else {"tenant": tenant})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["items"]
        assert all(one["status"] == "submitted" for one in found), found
        return found


@contextmanager
def serving(folder: Path, *, more: Callable[[TaskMQ], None] | None = None, **settings: Any) -> Iterator[Served]:
    """Serve an app with its own accounts at a free port, in a thread.

    Args:
        more: additional tasks of the app.
    """
    broker = f"memory://{uuid4()}"
    store = f"{new_file_store(folder)}?synchronous=normal"

    def twin() -> TaskMQ:
        made = TaskMQ(broker, store=store)
        define(made)
        if more is not None:
            more(made)
        return made

    app = twin()
    chosen = ServerSettings(port=0, rate=0, **settings)
    process = ServerProcess(build_served(app, settings=chosen), chosen)
    ready = threading.Event()
    said: list[str] = []

    def on_ready(url: str) -> None:
        said.append(url)
        ready.set()

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        await process.run(on_ready=on_ready)

    def run() -> None:
        asyncio.run(_add_accounts(app))
        asyncio.run(serve())

    loops: list[asyncio.AbstractEventLoop] = []
    thread = threading.Thread(target=run, name="dashboard", daemon=True)
    thread.start()
    assert ready.wait(40), "the server does not start"
    served = Served(said[0], app, loops[0], twin=twin)
    try:
        yield served
        served.close()
    finally:
        loops[0].call_soon_threadsafe(process.stop)
        thread.join(40)


def define(app: TaskMQ) -> None:
    """Define tasks with arguments of all kinds, and schedules."""

    @app.task(name="billing.charge", queue="billing")
    def charge(account: str, cents: int, urgent: bool = False, lines: list[str] | None = None) -> str:
        """Charge an account."""
        return f"{account}: {cents}"

    @app.cron("0 2 * * *", name="nightly", tz="Europe/Paris")
    @app.task(name="report", queue="reports")
    def report() -> None: ...


async def _add_accounts(app: TaskMQ) -> None:
    async with app:
        # A test needs no expensive hash.
        hasher = PasswordHasher(time_cost=1, memory_cost=64)
        administration = IdentityAdministration(app.sessions.store().identity, hasher=hasher)
        by = Actor(user="setup")
        await administration.add_first_admin("root", PASSWORD, by=by)
        await administration.add_tenant("acme", by=by)
        await administration.add_user(
            "vera", by=by, password=PASSWORD, memberships=(Membership("acme", Role.VIEWER),)
        )


class Eyes:
    """A page of a browser, and its errors."""

    def __init__(self, page: Page, served_url: str) -> None:
        self.page = page
        self.url = served_url
        self.wrong: list[str] = []
        # Errors provoked by a test: a part of the message.
        self.forgiven: list[str] = []
        page.set_default_timeout(_PATIENCE)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("requestfailed", lambda request: self._on_failure(request.url, str(request.failure)))

    def open(self, where: str = "") -> Self:
        """Open a view by its address, as in a link, and wait until it is complete and has replaced the last one."""
        self.page.goto(f"{self.url}/ui/#/{where}")
        _, _, route = self.page.url.partition("#")
        # The form for signing in has no route.
        shown = f"main:is(:not([data-route]), [data-route={json.dumps(f'#{route}')}])"
        expect(self.page.locator(shown)).to_be_attached()
        return self.settle()

    def settle(self) -> Self:
        expect(self.page.locator("h1").first).to_be_visible()
        expect(self.page.locator("[data-loading]")).to_have_count(0)
        return self

    def see(self, text: str) -> None:
        """Wait for a text."""
        expect(self.page.get_by_text(text).first).to_be_visible()

    def see_count(self, found: Locator, count: int) -> None:
        expect(found).to_have_count(count)

    def confirm(self, name: str) -> None:
        """Press the button of that name in the dialog, once it is open: the button that opens it may have the same
        name.
        """
        self.page.locator("dialog[open]").get_by_role("button", name=_exact(name)).click()

    def click(self, name: str) -> None:
        """Press the button, or follow the link, of that name; in the dialog if one is open."""
        exact = _exact(name)
        place = self.page.locator("dialog[open]").or_(self.page.locator("#root:not(:has(dialog[open]))"))
        place.get_by_role("button", name=exact).or_(place.get_by_role("link", name=exact)).first.click()

    def check(self) -> None:
        """Fail if there was an error."""
        found = [one for one in self.wrong if not any(part in one for part in self.forgiven)]
        if found:
            raise AssertionError("\n".join(found))

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            where = message.location["url"].removeprefix(self.url)
            self.wrong.append(f"console: {where}: {message.text}")

    def _on_failure(self, url: str, failure: str) -> None:
        if _EXPECTED.search(failure) is None:
            self.wrong.append(f"request: {url}: {failure}")


def _exact(name: str) -> re.Pattern[str]:
    return re.compile(f"^{re.escape(name)}$")


@contextmanager
def working(served: Served) -> Iterator[None]:
    """Run a worker and a scheduler beside the server until the block ends."""
    worker = Worker(served.twin(), WorkerConfig(name="w1", concurrency=4, grace=1, capture_logs="debug"))
    scheduler = Scheduler(served.twin(), counts_runs=True, alerts=AlertSettings())
    ends = [served.begin(worker.run()), served.begin(scheduler.run())]
    try:
        yield
    finally:
        served.call(worker.drain)
        served.call(scheduler.stop)
        for end in ends:
            end.result(_PATIENCE / 1000)


@contextmanager
def browsing() -> Iterator[Browser]:
    """Start a browser without a window."""
    program = find_chromium()
    if program is None:
        raise ServerUnavailable("no Chromium here: run as root: .venv/bin/python -m tests.servers install chromium")
    expect.set_options(timeout=_PATIENCE)
    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def watching(browser: Browser, served: Served | str, **options: Any) -> Iterator[Eyes]:
    """Open a fresh browser context; at its end there must have been no error.

    Args:
        served: an app of `serving`, or the URL of a server.
    """
    context = browser.new_context(viewport=options.pop("viewport", WIDE), **options)
    try:
        eyes = Eyes(context.new_page(), served if isinstance(served, str) else served.url)
        yield eyes
        eyes.check()
    finally:
        context.close()


def violations(page: Page) -> list[str]:
    """Return the accessibility violations that axe-core finds in the current page."""
    return _run_axe(page, f"[document, {{ runOnly: {json.dumps(_AXE_RULES)} }}]")


def structural_violations(page: Page) -> list[str]:
    """Return the violations of all rules but that of contrast, which takes most of the time."""
    rules = "{ 'color-contrast': { enabled: false } }"
    return _run_axe(page, f"[document, {{ runOnly: {json.dumps(_AXE_RULES)}, rules: {rules} }}]")


def contrast_violations(page: Page) -> list[str]:
    """Return the texts without enough contrast, a few for each combination of colours and sizes."""
    return _run_axe(page, f"[{{ include: ({_FIND_LOOKS})() }}, {{ runOnly: ['color-contrast'] }}]")


# Texts of equal colour, size and backgrounds have equal contrast; one of them may be covered by another element.
_FIND_LOOKS: Final = """() => {
    const grounds = new Map(), found = new Map();
    const groundOf = one => {
        if (one && !grounds.has(one)) {
            const { backgroundColor, backgroundImage, opacity } = getComputedStyle(one);
            const own = `${backgroundColor} ${backgroundImage} ${opacity};`;
            grounds.set(one, groundOf(one.parentElement) + (own === "rgba(0, 0, 0, 0) none 1;" ? "" : own));
        }
        return grounds.get(one) ?? "";
    };
    for (const one of document.querySelectorAll("body *")) {
        const isText = one.matches("input, select, textarea")
            || [...one.childNodes].some(each => each.nodeType === Node.TEXT_NODE && each.data.trim());
        if (!isText || !one.checkVisibility() || one.offsetWidth < 2) continue;
        const { color, fontSize, fontWeight } = getComputedStyle(one);
        const look = [groundOf(one), color, fontSize, fontWeight].join();
        if (!found.has(look)) found.set(look, []);
        if (found.get(look).length < 3) found.get(look).push(one);
    }
    return [...found.values()].flat();
}"""


def _run_axe(page: Page, arguments: str) -> list[str]:
    """Run axe-core.

    Args:
        arguments: the context and the options, as JavaScript.
    """
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text())
    # Describing what passes takes as long as checking it.
    options = "{ resultTypes: ['violations'], ...options }"
    found = page.evaluate(f"() => {{ const [context, options] = {arguments}; return axe.run(context, {options}); }}")
    return [
        f"{each['id']}: {node['html'][:160]}: {node['failureSummary'][:300]}"
        for each in found["violations"]
        for node in each["nodes"][:3]
    ]


def answer(route: Route, content: Any, status: int = 200) -> None:
    """Answer a request of a page instead of the server."""
    kind = "application/json" if status < 400 else "application/problem+json"
    route.fulfill(status=status, json=content, content_type=kind)
