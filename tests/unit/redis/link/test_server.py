"""Calls that move from node to node, against scripted servers: the verdict on a failed call."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from taskmq.errors import StateUnavailable
from taskmq_redis.link.server import Server
from taskmq_redis.scripts.script import Script
from taskmq_redis.url import parse_url

Part = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def command(reader: asyncio.StreamReader) -> bytes:
    """Return the first word of the next command."""
    words: list[bytes] = []
    for _ in range(int((await reader.readuntil(b"\r\n"))[1:])):
        length = int((await reader.readuntil(b"\r\n"))[1:])
        words.append((await reader.readexactly(length + 2))[:-2])
    return words[0]


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a client's greeting up to its first script."""
    while await command(reader) != b"EVALSHA":
        writer.write(b"+OK\r\n")


@asynccontextmanager
async def playing(*parts: Part) -> AsyncGenerator[int]:
    """Start a server with one script per connection, the last one for all further connections; yield its port."""
    left = list(parts)

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await (left.pop(0) if len(left) > 1 else left[0])(reader, writer)
        finally:
            writer.close()

    async with await asyncio.start_server(on_connect, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read until the client disconnects."""
    await reader.read()


async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Do nothing."""


@pytest.mark.real_time
@pytest.mark.parametrize(("stand_in", "said"), [(silent, "did not answer"), (dies, "could not be reached")])
async def test_a_call_with_a_lost_answer_may_have_been_executed_even_on_one_node(
    stand_in: Part, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As after an idle period: the client notices a connection closed by the server.
    monkeypatch.setattr("taskmq_redis.link.pipeline._FRESH", 0.0)

    async def answers_and_dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        writer.write(b":1\r\n")
        await command(reader)

    async with playing(answers_and_dies, dies, stand_in) as node:

        async def refers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await greet(reader, writer)
            writer.write(b"-MOVED 5 127.0.0.1:%d\r\n" % node)
            await writer.drain()

        async with playing(refers, silent) as home:
            server = Server(parse_url(f"redis://127.0.0.1:{home}/0?timeout=1"), name="test")
            assert await server.run(Script("crash_counts/begin"), ["key"], ["1", "2"]) == 1
            with pytest.raises(StateUnavailable, match=said) as caught:
                await server.run(Script("crash_counts/begin"), ["key"], ["1", "2"], timeout=0.3)
            assert not caught.value.is_certain
            await server.aclose()
