"""Time until the dashboard is first usable, at a quarter of this machine's speed. By hand, alone:

.venv/bin/python -m tests.dashboard.speed

The browser measures from the request of the page on, with an empty cache; the result is the median of several runs.
"""

import statistics
import tempfile
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser

from tests.dashboard.kit import Eyes, Served, browsing, serving

_SLOWDOWN: Final = 4
_TIMES: Final = 7
_JOBS: Final = 40
# Before the page's own scripts: the times of the first title and of the end of loading.
_WATCH: Final = """
    window.seen = {};
    new MutationObserver(() => {
        const now = performance.now(), is_there = document.querySelector("h1") !== null;
        if (is_there) window.seen.usable ??= now;
        if (is_there && !document.querySelector("[data-loading]")) window.seen.complete ??= now;
    }).observe(document, { childList: true, subtree: true, attributes: true });
    new PerformanceObserver(list => {
        for (const each of list.getEntries()) window.seen[each.name] = each.startTime;
    }).observe({ type: "paint", buffered: true });
"""
_FIGURES: Final = ("first-contentful-paint", "usable", "complete")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), development=True) as served:
        served.submit(*({"job_type": "report", "job_id": f"job-{number}"} for number in range(_JOBS)))
        with browsing() as browser:
            _load(browser, served)
            loads = [_load(browser, served) for _ in range(_TIMES)]
    for name in _FIGURES:
        found = sorted(load[name] for load in loads)
        print(f"{name:24} {statistics.median(found):7.0f} ms   ({found[0]:.0f} to {found[-1]:.0f})")
    print(f"{'requests until complete':24} {loads[-1]['requests']:7}")


def _load(browser: Browser, served: Served) -> dict[str, Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        page = context.new_page()
        eyes = Eyes(page, served.url)
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": _SLOWDOWN})
        page.add_init_script(_WATCH)
        eyes.open()
        eyes.check()
        return {**page.evaluate("() => window.seen"), "requests": len(requests)}
    finally:
        context.close()


if __name__ == "__main__":
    main()
