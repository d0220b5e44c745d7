"""An HTTP server for tests of notifications."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Site:
    """An HTTP server on this machine with configured answers; it records its requests."""

    def __init__(self, *answers: bytes) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self._answers = list(answers)
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *rest = head.split("\r\n")
        headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in rest) if name}
        body = await reader.readexactly(int(headers["content-length"]))
        self.requests.append((line, headers, body))
        answer = self._answers.pop(0) if self._answers else b"200 OK"
        writer.write(b"HTTP/1.1 " + answer + b"\r\nContent-Length: 0\r\n\r\n" if answer else b"hello\r\n")
        writer.close()


def with_site(test: Callable[[Site], Coroutine[Any, Any, None]], *answers: bytes) -> Site:
    """Serve the site during a test that may send requests to it."""
    site = Site(*answers)

    async def main() -> None:
        server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
        site.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            await test(site)

    asyncio.run(main())
    return site
