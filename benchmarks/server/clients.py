"""Cheap HTTP clients: persistent connections that send prepared bytes."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Self


class WebError(AssertionError):
    """Raised when the server answers with an error.

    Attributes:
        status: the HTTP status code.
    """

    def __init__(self, status: int, answer: bytes) -> None:
        super().__init__(answer)
        self.status = status


class WebClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def opened(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, request: bytes) -> Any:
        """Send a request and return the JSON of the answer.

        Raises:
            WebError: the answer is an error.
        """
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.partition(b":")[2])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        )
        body = await self._reader.readexactly(length)
        if (status := int(head.split(b" ", 2)[1])) not in {200, 201}:
            raise WebError(status, head + body)
        return json.loads(body)

    async def begin(self, request: bytes) -> None:
        """Send a request for a stream and read the head of its answer."""
        self._writer.write(request)
        await self._reader.readuntil(b"\r\n\r\n")

    async def drop(self) -> None:
        """Read and discard data until the connection closes."""
        while await self._reader.read(1 << 16):
            pass

    async def aclose(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def get(path: str, token: str) -> bytes:
    """Build a GET request."""
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


def post(path: str, token: str, body: object) -> bytes:
    """Build a POST request with a JSON body."""
    text = json.dumps(body)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


async def closed_loop(
    port: int, clients: int, seconds: float, request: Callable[[int, int], bytes]
) -> tuple[float, Sequence[float]]:
    """Let clients send one request after the other; return requests per second and the duration of each.

    Args:
        request: builds a client's request from the number of the client and of the request.
    """
    opened = [await WebClient.opened(port) for _ in range(clients)]
    taken: list[float] = []
    until = time.perf_counter() + seconds

    async def run(number: int, client: WebClient) -> None:
        turn = 0
        while (began := time.perf_counter()) < until:
            await client.ask(request(number, turn))
            taken.append(time.perf_counter() - began)
            turn += 1

    began = time.perf_counter()
    await asyncio.gather(*(run(number, client) for number, client in enumerate(opened)))
    took = time.perf_counter() - began
    for client in opened:
        await client.aclose()
    return len(taken) / took, taken
