import asyncio
import os
import sys
import threading
import uuid
from collections.abc import Iterator

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.stores import WaitingMessage
from taskmq_local import forget_memory, open_memory_state
from tests.unit.store_kit import at_once


@pytest.fixture
def name() -> Iterator[str]:
    name = uuid.uuid4().hex
    yield name
    forget_memory(name)


async def test_leases_of_a_forgotten_memory_are_free(name: str) -> None:
    before = open_memory_state(f"memory://{name}", BrokerOptions())
    await before.leases.acquire("key", owner="before", seconds=60)

    forget_memory(name)

    after = open_memory_state(f"memory://{name}", BrokerOptions())
    assert await after.leases.find("key") is None
    assert await before.leases.find("key") is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_begins_with_empty_tables(name: str) -> None:
    state = open_memory_state(f"memory://{name}", BrokerOptions())
    at_once(state.leases.acquire("key", owner="parent", seconds=60))

    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if at_once(state.leases.acquire("key", owner="child", seconds=60)) == 1 else 2
        finally:
            os._exit(code)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    lease = at_once(state.leases.find("key"))
    assert lease is not None
    assert lease.owner == "parent"


@pytest.mark.real_time
async def test_a_message_put_on_another_thread_wakes_the_listener(name: str) -> None:
    message = WaitingMessage(job_id="job", task="test", queue="q", due=1, body=b"{}", content_type="application/json")

    async def put() -> None:
        state = open_memory_state(f"memory://{name}", BrokerOptions())
        await state.delays.put(message)

    state, heard = open_memory_state(f"memory://{name}", BrokerOptions()), asyncio.Event()
    state.delays.listen(heard.set)
    thread = threading.Thread(target=asyncio.run, args=(put(),))
    thread.start()

    async with asyncio.timeout(30):
        await heard.wait()

    thread.join()
    assert await state.delays.find("job") == message
    await state.aclose()
