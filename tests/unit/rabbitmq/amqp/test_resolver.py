"""Host names and addresses."""

import asyncio
import socket
import threading

import pytest

from taskmq_rabbitmq.amqp.resolver import resolve


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_addresses_match_those_of_the_system(host: str) -> None:
    how = (socket.AF_UNSPEC, socket.SOCK_STREAM)

    assert asyncio.run(resolve(host, 5672, *how)) == socket.getaddrinfo(host, 5672, *how)


@pytest.mark.real_time
async def test_an_ip_address_needs_no_thread() -> None:
    before = threading.active_count()
    await resolve("127.0.0.1", 5672)
    assert threading.active_count() == before


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 300])
def test_a_name_without_an_address_is_an_error(host: str) -> None:
    with pytest.raises((OSError, UnicodeError)):
        asyncio.run(resolve(host, 5672))


@pytest.mark.real_time
async def test_no_executor_is_needed() -> None:
    loop = asyncio.get_running_loop()
    await loop.shutdown_default_executor()
    assert await resolve("localhost", 5672)


def test_an_answer_after_closing_the_loop_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    is_closed = threading.Event()

    def answer(*_: object, **__: object) -> list[object]:
        assert is_closed.wait(10)
        return []

    async def main() -> list[threading.Thread]:
        asking = asyncio.create_task(resolve("localhost", 5672))
        await asyncio.sleep(0)
        asking.cancel()
        return [thread for thread in threading.enumerate() if "looks up" in thread.name]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    threads = asyncio.run(main())
    is_closed.set()
    assert threads
    for thread in threads:
        thread.join(10)

    # An error in one of them would have failed the test.
    assert [thread for thread in threads if thread.is_alive()] == []
