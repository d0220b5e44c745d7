"""Redis killed, restarted, paused, emptied, full, demoted, silent and sending garbage: its guarantees hold."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from taskmq.contracts.stores import Granted, Held, PlaceDemand, RateDemand, TakenMessage
from taskmq.errors import StateUnavailable
from taskmq_redis.link.call import Call, pack
from taskmq_redis.link.connect import Connection, new_connection, targets_of
from taskmq_redis.link.pipeline import Pipeline
from taskmq_redis.url import parse_url
from tests.coroutines import run_by
from tests.integration.redis_case import DUE, PATIENCE, answers, calls_of, open_redis, record, run, waiting
from tests.servers import Redis, TcpProxy
from tests.servers.ports import PortLease
from tests.servers.waiting import until

_NO_NEED = {"done"}  # of nothing: there is nothing to query


@pytest.fixture
def redis() -> Iterator[Redis]:
    """Start a server for the test."""
    with Redis() as server:
        yield server


@run_by(run)
async def test_every_call_to_a_closed_port_fails_at_once() -> None:
    with PortLease(1) as lease:
        async with open_redis(f"redis://:secret@127.0.0.1:{lease.ports[0]}/0") as state:
            for name, call in calls_of(state).items():
                if name in _NO_NEED:
                    continue
                with pytest.raises(StateUnavailable) as caught:
                    await call()
                assert caught.value.is_certain, name
                assert "secret" not in str(caught.value), name


@run_by(run)
async def test_a_call_after_a_failed_connect_began_gets_a_connect_of_its_own(redis: Redis) -> None:
    with PortLease(1) as lease:
        closed, running = (parse_url(f"redis://127.0.0.1:{port}/0") for port in (lease.ports[0], redis.port))
        first, second = (Call(pack(("PING",)), can_repeat=False) for _ in range(2))
        turns = iter([closed, running])

        def connect() -> Connection:
            endpoint = next(turns)
            if endpoint is closed:
                asyncio.get_running_loop().call_soon(pipeline.submit, second)
            return new_connection(endpoint, targets_of(endpoint)[0], name="test")

        pipeline = Pipeline("redis", connect, timeout=PATIENCE)
        pipeline.submit(first)

        with pytest.raises(StateUnavailable, match="could not be reached"):
            await first.future
        assert await second.future == b"PONG"
        await pipeline.aclose()


def test_a_wrong_password_is_reported_and_not_shown(redis: Redis) -> None:
    redis.command("CONFIG", "SET", "requirepass", "right")

    async def main() -> None:
        async with open_redis(redis.url.replace("redis://", "redis://:wrong-one@")) as state:
            with pytest.raises(StateUnavailable, match=r"(?i)password") as caught:
                await state.results.get("job")
            assert "wrong-one" not in str(caught.value)
            assert "wrong-one" not in state.address
        async with open_redis(redis.url.replace("redis://", "redis://:right@")) as state:
            await state.results.put(record(), ttl=60)
            assert await state.results.get("job") == record()

    run(main)


@pytest.mark.parametrize("use", ["fresh", "connected"])
@run_by(run)
async def test_while_the_server_is_paused_every_call_ends_within_its_timeout(redis: Redis, use: str) -> None:
    async with open_redis(f"{redis.url}?timeout=0.5") as state:
        if use == "connected":
            await state.results.get("job")
        redis.pause()
        try:
            calls = {name: call for name, call in calls_of(state).items() if name not in _NO_NEED}
            ended = await asyncio.gather(*(call() for call in calls.values()), return_exceptions=True)
            for name, error in zip(calls, ended, strict=True):
                assert isinstance(error, StateUnavailable), name
        finally:
            redis.resume()
        await answers(state)


@run_by(run)
async def test_a_server_that_answers_garbage_is_an_unavailable_state() -> None:
    noises = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\xff\x00\xff",
        b"$-7\r\nab",
        b"+OK\r\n" * 50,
        b"*1\r\n$99999\r\n",
    ]

    for noise in noises:

        async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, noise: bytes = noise) -> None:
            with suppress(ConnectionError):
                while await reader.read(65536):
                    writer.write(noise)
                    await writer.drain()
            writer.close()

        server = await asyncio.start_server(babble, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, open_redis(f"redis://127.0.0.1:{port}/0?timeout=0.5") as state:
            try:
                async with asyncio.timeout(10):
                    found = await state.results.get("job")
            except StateUnavailable:
                continue
            pytest.fail(f"{noise!r} was accepted as the record {found!r}")


@run_by(run)
async def test_foreign_keys_are_reported_and_harm_no_others(redis: Redis) -> None:
    async with open_redis(redis.url) as state:
        redis.command("SET", "taskmq:{text}:result", "theirs")
        redis.command("HSET", "taskmq:{fields}:result", "record", "theirs")
        for job, words in (("text", "refused: WRONGTYPE"), ("fields", "is not a record of taskmq")):
            with pytest.raises(StateUnavailable, match=words):
                await state.results.get(job)
        await state.delays.put(waiting("ours"))
        redis.command("HSET", "taskmq:{delay}:messages", "theirs", "theirs")
        redis.command("ZADD", "taskmq:{delay}:due", "0", "theirs")

        taken = await state.delays.take(now=DUE, limit=10, lease=60)

        assert [one.message.job_id for one in taken] == ["ours"]
        assert await state.delays.find("theirs") is None
        assert await state.delays.list(limit=10) == [waiting("ours")]


@run_by(run)
async def test_a_killed_and_restarted_server_keeps_its_data(redis: Redis) -> None:
    async with open_redis(redis.url) as state:
        await state.results.put(record(), ttl=60)
        await state.delays.put(waiting())
        (taken,) = await state.delays.take(now=DUE, limit=1, lease=60)
        redis.kill()
        for name, call in calls_of(state).items():
            if name in _NO_NEED:
                continue
            with pytest.raises(StateUnavailable):
                await call()
        redis.start()
        await answers(state)

        assert await state.results.get("job") == record()
        assert await state.delays.take(now=DUE, limit=1, lease=60) == []
        await state.delays.mark_done([taken])
        assert await state.delays.count() == 0
        # It no longer knows the scripts.
        assert await state.starts.begin("job", ttl=60) == 1


@run_by(run)
async def test_an_idle_connection_closed_by_the_server_costs_no_call(redis: Redis) -> None:
    async with open_redis(redis.url) as state:
        for _ in range(3):
            assert await state.starts.begin("job", ttl=60) > 0
            redis.restart()
            # A call that must not be repeated: it is sent on an existing connection.
            assert not await state.delays.cancel("nothing")


@run_by(run)
async def test_a_waiter_survives_a_kill_of_the_server_and_misses_nothing(redis: Redis) -> None:
    async with open_redis(redis.url) as waiter, open_redis(redis.url) as writer:
        jobs = [f"job {number}" for number in range(200)]
        waits = [asyncio.create_task(waiter.results.wait(job, timeout=None)) for job in jobs]
        await writer.results.put(record("job 0"), ttl=60)
        assert await waits[0] == record("job 0")
        redis.kill()
        redis.start()
        await answers(writer)

        # Before, during and after the waiter's new subscription.
        await asyncio.gather(*(writer.results.put(record(job), ttl=60) for job in jobs[1:]))

        async with asyncio.timeout(PATIENCE):
            assert await asyncio.gather(*waits) == [record(job) for job in jobs]


@run_by(run)
async def test_a_put_while_the_channels_are_down_is_seen_once_they_return(redis: Redis) -> None:
    with TcpProxy(redis.port) as proxy:
        async with (
            open_redis(f"redis://127.0.0.1:{proxy.port}/0?timeout=1") as waiter,
            open_redis(redis.url) as writer,
        ):
            waiting_for = asyncio.create_task(waiter.results.wait("job", timeout=None))
            await _until_subscribed(redis, 1)
            proxy.refuse(True)
            proxy.cut()
            await _until_subscribed(redis, 0)
            await writer.results.put(record(), ttl=60)
            await asyncio.sleep(0)
            assert not waiting_for.done()

            proxy.refuse(False)

            async with asyncio.timeout(PATIENCE):
                assert await waiting_for == record()


def test_a_silently_dead_connection_is_noticed_by_its_listener(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    # Seconds between two pings; the default is too long for a test.
    monkeypatch.setattr("taskmq_redis.link.pubsub._PING", 0.3)

    async def main() -> None:
        with TcpProxy(redis.port) as proxy:
            async with (
                open_redis(f"redis://127.0.0.1:{proxy.port}/0?timeout=0.5") as waiter,
                open_redis(redis.url) as writer,
            ):
                waiting_for = asyncio.create_task(waiter.results.wait("job", timeout=None))
                await _until_subscribed(redis, 1)
                proxy.strand()
                await writer.results.put(record(), ttl=60)

                async with asyncio.timeout(PATIENCE):
                    assert await waiting_for == record()

    run(main)


@run_by(run)
async def test_a_call_with_a_lost_answer_is_retried_if_that_is_harmless(redis: Redis) -> None:
    with TcpProxy(redis.port) as proxy:
        async with open_redis(f"redis://127.0.0.1:{proxy.port}/0?timeout=3") as state:
            # So that the server knows the scripts.
            for call in calls_of(state).values():
                await call()
            for number in range(5):
                job = f"job {number}"
                await state.results.get(job)
                proxy.hold_answers(True)
                begin = asyncio.create_task(state.starts.begin(job, ttl=60))
                claim = asyncio.create_task(state.claims.claim(job, job_id=job, owner="w", lease=60, ttl=60))
                cancel = asyncio.create_task(state.delays.cancel(job))
                await _until_key_exists(redis, f"taskmq:{{{job}}}:claim")
                proxy.cut()
                proxy.hold_answers(False)

                # Counted once, and claimed by the notified caller.
                assert await begin == 1
                assert isinstance(await claim, Granted)
                with pytest.raises(StateUnavailable) as caught:
                    await cancel
                assert not caught.value.is_certain
                assert await state.starts.begin(job, ttl=60) == 2


@run_by(run)
async def test_scripts_forgotten_by_the_server_are_sent_again(redis: Redis) -> None:
    async with open_redis(redis.url) as state:
        for count in range(1, 4):
            assert await state.starts.begin("job", ttl=60) == count
            redis.command("SCRIPT", "FLUSH")


@run_by(run)
async def test_while_the_server_loads_its_data_calls_wait_for_it() -> None:
    refusals = 5

    async def load(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal refusals
        while words := await _command(reader):
            if words[0] == b"HGET":
                refusals -= 1
                writer.write(b"$-1\r\n" if refusals < 0 else b"-LOADING Redis is loading the dataset in memory\r\n")
            else:
                writer.write(b"+OK\r\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(load, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        async with open_redis(f"redis://127.0.0.1:{port}/0") as state:
            assert await state.results.get("job") is None
            assert refusals == -1
        refusals = 1_000_000
        async with open_redis(f"redis://127.0.0.1:{port}/0?timeout=0.5") as state:
            with pytest.raises(StateUnavailable, match="did not answer within") as caught:
                await state.results.get("job")
            assert caught.value.is_certain


# Other roles and memory levels


@run_by(run)
async def test_a_demoted_server_is_recognised_and_the_next_host_is_tried(redis: Redis) -> None:
    with Redis() as other:
        url = f"redis://127.0.0.1:{redis.port},127.0.0.1:{other.port}/0"
        async with open_redis(url) as state:
            await state.results.put(record("a"), ttl=60)
            redis.command("REPLICAOF", "127.0.0.1", str(other.port))
            with pytest.raises(StateUnavailable, match="cannot be written: ") as caught:
                await state.results.put(record("b"), ttl=60)
            assert caught.value.is_certain

            await state.results.put(record("b"), ttl=60)

            assert other.command("EXISTS", "taskmq:{b}:result") == 1


@run_by(run)
async def test_a_full_server_refuses_additions_and_allows_moves(redis: Redis) -> None:
    async with open_redis(redis.url) as state:
        for number in range(4):
            await state.delays.put(waiting(f"job {number}", due=DUE + number))
        (early,) = await state.delays.take(now=DUE, limit=1, lease=0.001)
        held = await state.claims.claim("held", job_id="job", owner="w", lease=60, ttl=60)
        assert isinstance(held, Granted)
        redis.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
        redis.command("CONFIG", "SET", "maxmemory", "1")

        for call in (
            state.results.put(record(), ttl=60),
            state.delays.put(waiting("new")),
            state.starts.begin("job", ttl=60),
            state.claims.claim("new", job_id="job", owner="w", lease=60, ttl=60),
        ):
            with pytest.raises(StateUnavailable, match=r"(?i)memory") as caught:
                await call
            assert caught.value.is_certain
        assert await state.delays.find("new") is None
        assert redis.command("KEYS", "*job}:starts") == []

        # Due messages are still claimed, returned, changed and completed.
        taken = await state.delays.take(now=DUE + 2, limit=3, lease=60)
        assert [one.message.job_id for one in taken] == ["job 0", "job 1", "job 2"]
        assert await state.claims.release("held", token=held.token)
        assert await state.claims.find("held") is None
        await state.delays.give_back(taken[1:])
        assert await state.delays.swap(taken[1].message, waiting("job 1", due=DUE + 9))
        assert await state.delays.cancel("job 2")
        await state.delays.mark_done([early, taken[0]])
        assert [message.job_id for message in await state.delays.list(limit=9)] == ["job 3", "job 1"]

        redis.command("CONFIG", "SET", "maxmemory", "0")
        await state.results.put(record(), ttl=60)


def test_a_permit_or_lock_can_be_kept_and_released_while_the_server_is_full(redis: Redis) -> None:
    places = PlaceDemand(key="places:a", places=1)

    async def main() -> None:
        async with open_redis(redis.url) as state:
            lease = await state.leases.acquire("lease", owner="w", seconds=1)
            assert isinstance(lease, int)
            claim = await state.claims.claim("key", job_id="job", owner="w", lease=1, ttl=60)
            assert isinstance(claim, Granted)
            assert (await state.limits.acquire("job", [places], hold="h", seconds=1, patience=0)).granted
            redis.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
            redis.command("CONFIG", "SET", "maxmemory", "1")

            assert await state.leases.renew("lease", token=lease, seconds=60)
            assert await state.claims.renew({"key": claim.token}, lease=60) == frozenset()
            assert await state.limits.renew([("h", places)], seconds=60) == [True]

            held = await state.leases.find("lease")
            assert held is not None
            assert held.left > 30
            found = await state.claims.find("key")
            assert isinstance(found, Held)
            assert found.left > 30

            await state.leases.release("lease", token=lease)
            assert await state.leases.find("lease") is None
            await state.limits.release("h", [places.key], held=1.0)
            assert (await state.limits.usage(places.key)).held == 0
            # Additions are refused, and succeed once there is room.
            with pytest.raises(StateUnavailable, match=r"(?i)memory"):
                await state.leases.acquire("other", owner="w", seconds=60)
            with pytest.raises(StateUnavailable, match=r"(?i)memory"):
                await state.limits.acquire("job", [rate], hold="h", seconds=1, patience=0)
            redis.command("CONFIG", "SET", "maxmemory", "0")
            assert (await state.limits.acquire("job", [rate], hold="h", seconds=1, patience=0)).granted

    rate = RateDemand(key="rate:a", interval=60.0)
    run(main)


@run_by(run)
async def test_an_emptied_server_works_like_a_new_one(redis: Redis) -> None:
    async with open_redis(redis.url) as state:
        await state.results.put(record(), ttl=60)
        await state.delays.put(waiting())
        taken = await state.delays.take(now=DUE, limit=1, lease=60)
        waits = asyncio.create_task(state.results.wait("other", timeout=None))
        await _until_subscribed(redis, 1)

        redis.command("FLUSHALL")

        assert await state.results.get("job") is None
        assert await state.delays.count() == 0
        await state.delays.put(waiting())
        # The values read before differ from those stored since.
        await state.delays.mark_done(taken)
        assert await state.delays.find("job") == waiting()
        await state.results.put(record("other"), ttl=60)
        async with asyncio.timeout(PATIENCE):
            assert await waits == record("other")


@run_by(run)
async def test_an_index_without_its_message_blocks_nothing(redis: Redis) -> None:
    async with open_redis(redis.url) as state:
        for job in ("lost", "kept"):
            await state.delays.put(waiting(job))
        # As by an eviction that the settings should not allow.
        redis.command("HDEL", "taskmq:{delay}:messages", "lost")

        taken = await state.delays.take(now=DUE, limit=10, lease=60)

        assert [one.message.job_id for one in taken] == ["kept"]
        assert await state.delays.next_due() is None
        await state.delays.mark_done([*taken, TakenMessage(waiting("lost"), "0" * 16)])
        assert redis.command("DBSIZE") == 0


@run_by(run)
async def test_every_key_has_the_prefix_and_an_expiry_unless_it_waits_or_is_listed(redis: Redis) -> None:
    async with open_redis(f"{redis.url}?prefix=shop:dev") as state:
        for call in calls_of(state).values():
            await call()
        await state.results.put(record("job 2"), ttl=60)
        await state.delays.put(waiting("early"))
        await state.delays.put(waiting("late", due=DUE + 1))
        await state.delays.take(now=DUE, limit=1, lease=60)
        await state.starts.begin("job", ttl=60)

    keys = redis.command("KEYS", "*")
    assert isinstance(keys, list)
    lives = {str(key): int(str(redis.command("PTTL", str(key)))) for key in keys}
    assert all(key.startswith("shop:dev:{") for key in lives)
    assert all(0 < life < 400 * 86_400_000 + 1 for life in lives.values() if life != -1), lives
    lasting = {key for key, life in lives.items() if life == -1}
    assert lasting == {f"shop:dev:{{delay}}:{name}" for name in ("messages", "due", "taken")} | {
        *(f"shop:dev:{{schedules of shop}}:{name}" for name in ("definitions", "places")),
    }
    assert {key.rpartition(":")[2] for key in lives} == {
        "lease",
        "facts",
        "line",
        "order",
        "holds",
        "ends",
        "reasons",
        "result",
        "ended",
        "starts",
        "progress",
        "checkpoints",
        "claim",
        "record",
        "definitions",
        "places",
        "messages",
        "due",
        "taken",
    }


@run_by(run)
async def test_two_prefixes_are_independent(redis: Redis) -> None:
    async with open_redis(f"{redis.url}?prefix=a") as one, open_redis(f"{redis.url}?prefix=b") as other:
        await one.results.put(record(), ttl=60)
        await one.delays.put(waiting())

        assert await other.results.get("job") is None
        assert await other.delays.count() == 0


def test_a_state_needs_two_connections_for_any_number_of_waiters(redis: Redis) -> None:
    async def main() -> None:
        async with open_redis(redis.url, name="worker shop web-3:4711 ☂") as state:
            waits = [asyncio.create_task(state.results.wait(f"job {n}", timeout=PATIENCE)) for n in range(500)]
            await _until_subscribed(redis, 500)

            clients = str(redis.command("CLIENT", "LIST")).splitlines()
            ours = [line for line in clients if "name=worker-shop-web-3:4711-- " in line]
            assert len(ours) == 2

            await asyncio.gather(*(state.results.put(record(f"job {n}"), ttl=60) for n in range(500)))
            assert await asyncio.gather(*waits) == [record(f"job {n}") for n in range(500)]
            # There is no waiter, so there is no listener.
            await _until_subscribed(redis, 0)

    run(main)
    assert len(str(redis.command("CLIENT", "LIST")).splitlines()) == 1


async def _until_subscribed(redis: Redis, count: int) -> None:
    """Wait until that many channels have listeners."""

    def have_listeners() -> bool:
        channels = redis.command("PUBSUB", "CHANNELS")
        assert isinstance(channels, list)
        return len(channels) == count

    await until(have_listeners, f"{count} channels")


async def _until_key_exists(redis: Redis, key: str) -> None:
    """Wait until there is such a key."""
    await until(lambda: redis.command("EXISTS", key) == 1, key)


async def _command(reader: asyncio.StreamReader) -> list[bytes]:
    """Return the next command of a client; empty at the end."""
    line = await reader.readline()
    words: list[bytes] = []
    for _ in range(int(line[1:] or 0)):
        length = int((await reader.readline())[1:])
        words.append((await reader.readexactly(length + 2))[:-2])
    return words
