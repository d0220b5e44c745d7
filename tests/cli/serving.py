"""A server for commands that go through one, in the process of the tests."""

import asyncio
import importlib.util
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from taskmq.server import ServerSettings
from taskmq.server.process import ServerProcess
from tests.cli.kit import PATIENCE
from tests.servers import eventually
from tests.unit.server.kit import build_served


@contextmanager
def serve_shop(folder: Path) -> Iterator[str]:
    """Serve the app in `shop.py` of a folder in a thread; yield the address."""
    spec = importlib.util.spec_from_file_location("served_shop", folder / "shop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    settings = ServerSettings(port=0)
    application = build_served(module.app, settings=settings)
    process = ServerProcess(application, settings)
    found: SimpleQueue[tuple[asyncio.AbstractEventLoop, str]] = SimpleQueue()

    async def serve() -> None:
        await application.check()
        await process.run(on_ready=lambda address: found.put((asyncio.get_running_loop(), address)))

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(asyncio.run, serve())
        eventually(lambda: running.done() or not found.empty(), "a server that answers", within=PATIENCE)
        if running.done():
            running.result()
        loop, address = found.get()
        try:
            yield address.rstrip("/")
        finally:
            loop.call_soon_threadsafe(process.stop)
            running.result(PATIENCE.total_seconds())
