"""The work of a key is done once: duplicates wait or are answered, late ones do not count."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from taskmq import Context, Snooze, TaskMQ, UnsupportedFeature
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.stores import ClaimStore, Granted, Held, State
from taskmq.model.envelope import Invitation, decode_envelope
from taskmq.model.outcome import AlreadyDone, Cancelled, Dead, Outcome, Retried, Snoozed, Succeeded
from taskmq.model.states import JobState
from taskmq.run.facts import SCHEDULE_NAME
from taskmq.worker import Worker, WorkerConfig
from taskmq.worker.attempt import Attempt, Permit
from taskmq.worker.guards.idempotency import IdempotencyGuard, StoredKeys
from taskmq_local import open_memory_state
from tests.coroutines import run_by
from tests.unit.worker.gate import working
from tests.unit.worker.staged import FakeDelivery, StagedApp, open_staged, settle_loop
from tests.virtual_time import run

LEASE = 60.0


class Shop:
    """Tasks with keys, and a record of their runs."""

    def __init__(self, app: StagedApp) -> None:
        self.runs: list[str] = []
        self.tokens: list[int] = []
        self.open = asyncio.Event()
        self.open.set()
        self.cancelled: list[bool] = []

        @app.task(name="pay", queue="work", idempotency_key="order:{order}", idempotency_ttl="1h")
        async def pay(context: Context, order: str, what: str = "fine") -> str:
            self.runs.append(f"{order} {what}")
            self.tokens.append(context.fencing_token)
            await self.open.wait()
            self.cancelled.append(context.cancelled)
            if what == "fails" and context.attempt == 1:
                raise ValueError(what)
            if what == "snoozes":
                raise Snooze("5s")
            return f"{context.idempotency_key} by {context.job_id}"

        @app.task(name="refund", queue="work", idempotency_key="order", idempotency_scope="money")
        async def refund(order: str) -> str:
            self.runs.append(f"refund {order}")
            return "refunded"

        @app.task(name="book", queue="work", idempotency_key=lambda order: order, idempotency_scope="money")
        async def book(order: str) -> None:
            self.runs.append(f"book {order}")

        @app.task(name="quiet", queue="work", idempotency_key="order", result=False)
        async def quiet(order: str) -> object:
            self.runs.append(f"quiet {order}")
            return object()

        @app.task(name="odd", queue="work", idempotency_key="order")
        async def odd(order: str) -> object:
            self.runs.append(f"odd {order}")
            return object()

        @app.task(name="plain", queue="work")
        async def plain(order: str) -> str:
            self.runs.append(f"plain {order}")
            return "plain"


def _play(test: Callable[[StagedApp, Shop], Awaitable[None]]) -> None:
    async def main() -> None:
        with open_staged() as app:
            await test(app, Shop(app))

    run(main())


async def _send(app: StagedApp, job: str, *args: object, task: str = "pay", key: str | None = None) -> None:
    import json

    body = {"task": task, "id": job, "args": args, **({} if key is None else {"key": key})}
    await app.put(json.dumps(body).encode(), job_id=job, task=task)


async def _later(app: StagedApp, seconds: float = 40) -> None:
    for _ in range(10):
        app.fake_clock.advance(seconds / 10)
        await asyncio.sleep(0.1)
        await settle_loop()


async def _value(app: StagedApp, job: str) -> bytes | None:
    record = await app.record(job)
    return None if record is None or record.state is not JobState.SUCCEEDED else record.value


@run_by(_play)
async def test_the_second_job_of_a_key_returns_the_result_of_the_first(app: StagedApp, shop: Shop, /) -> None:
    async with working(app):
        await _send(app, "a", "7")
        await settle_loop()
        await _send(app, "b", "7")
        await _send(app, "c", "8")
        await settle_loop()

    assert shop.runs == ["7 fine", "8 fine"]
    assert await _value(app, "a") == await _value(app, "b") == b'"order:7 by a"'
    assert await _value(app, "c") == b'"order:8 by c"'
    assert shop.tokens == sorted({*shop.tokens})


@run_by(_play)
async def test_a_duplicate_waits_at_the_broker_without_an_attempt_while_the_first_runs(
    app: StagedApp, shop: Shop, /
) -> None:
    shop.open.clear()
    async with working(app):
        await _send(app, "a", "7")
        await settle_loop()
        await _send(app, "b", "7")
        await settle_loop()
        assert shop.runs == ["7 fine"]
        (entry,) = [entry for entry in app.story() if entry.startswith("confirmed")]
        assert entry == "confirmed work"
        assert (await app.stats("work")).delayed == 1

        await _later(app)
        assert shop.runs == ["7 fine"]
        shop.open.set()
        await _later(app)

    assert shop.runs == ["7 fine"]
    assert await _value(app, "b") == b'"order:7 by a"'


@pytest.mark.parametrize("what", ["fails", "snoozes"])
@run_by(_play)
async def test_a_run_that_will_be_repeated_frees_its_key(app: StagedApp, shop: Shop, /, what: str) -> None:
    async with working(app):
        await _send(app, "a", "7", what)
        await settle_loop()
        held = await _claim(_state(app).claims, "once:pay:order:7", over=None)
        assert isinstance(held, Granted)
        await _state(app).claims.release("once:pay:order:7", token=held.token)
        await _later(app)

    assert len(shop.runs) > 1
    assert (await _value(app, "a") is not None) is (what == "fails")


@run_by(_play)
async def test_the_key_of_a_message_precedes_that_of_the_arguments_and_needs_no_task_key(
    app: StagedApp, shop: Shop, /
) -> None:
    async with working(app):
        for job, order in (("a", "1"), ("b", "2")):
            await _send(app, job, order, key="same")
            await _send(app, f"{job}-plain", order, key="same", task="plain")
            await settle_loop()

    assert shop.runs == ["1 fine", "plain 1"]


@run_by(_play)
async def test_tasks_of_one_scope_share_keys_and_return_nothing_without_a_result(
    app: StagedApp, shop: Shop, /
) -> None:
    async with working(app):
        await _send(app, "a", "7", task="book")
        await settle_loop()
        await _send(app, "b", "7", task="refund")
        await _send(app, "c", "7", task="quiet")
        await _send(app, "d", "7", task="quiet")
        await settle_loop()

    assert shop.runs == ["book 7", "quiet 7"]
    assert await _value(app, "b") == b"null"
    assert app.story().count("acked work") == 4


@run_by(_play)
async def test_work_with_an_unstorable_result_is_still_done(app: StagedApp, shop: Shop, /) -> None:
    async with working(app):
        for job in ("a", "b"):
            await _send(app, job, "7", task="odd")
            await settle_loop()

    assert shop.runs == ["odd 7"]
    assert [letter.message_id for letter in await app.messages("work.dlq")] == ["a", "b"]


@run_by(_play)
async def test_arguments_without_a_valid_key_are_dead_letters(app: StagedApp, shop: Shop, /) -> None:
    async with working(app):
        await _send(app, "a", {"no": "text"})
        await settle_loop()

    (letter,) = await app.messages("work.dlq")
    assert letter.headers["x-taskmq-reason"] == "invalid_arguments"


@run_by(_play)
async def test_a_cancelled_job_does_not_wait_for_the_key(app: StagedApp, shop: Shop, /) -> None:
    await _state(app).revocations.revoke("b", reason="no", ttl=60)
    await _claim(_state(app).claims, "once:pay:order:7")
    async with working(app):
        await _send(app, "b", "7")
        await settle_loop()

    record = await app.record("b")
    assert record is not None
    assert record.state is JobState.CANCELLED


@run_by(_play)
async def test_the_result_of_a_late_holder_does_not_count_and_its_message_finds_the_other(
    app: StagedApp, shop: Shop, /
) -> None:
    shop.open.clear()
    claims = _state(app).claims
    async with working(app):
        await _send(app, "a", "7")
        await settle_loop()
        held = await _claim(claims, "once:pay:order:7", owner="other")
        assert isinstance(held, Held)
        other = await _claim(claims, "once:pay:order:7", job_id="z", owner="other", over=held.token)
        assert isinstance(other, Granted)
        await claims.complete(
            "once:pay:order:7",
            token=other.token,
            job_id="z",
            content_type="application/json",
            value=b'"z"',
            ttl=60,
        )
        shop.open.set()
        await settle_loop()

    assert app.story()[:1] == ["requeued work"]
    assert shop.runs == ["7 fine"]
    assert await _value(app, "a") == b'"z"'


@run_by(_play)
async def test_a_run_is_notified_when_it_loses_its_key(app: StagedApp, shop: Shop, /) -> None:
    shop.open.clear()
    claims = _state(app).claims
    async with working(app, lease=9.0):
        await _send(app, "a", "7")
        await settle_loop()
        held = await _claim(claims, "once:pay:order:7")
        assert isinstance(held, Held)
        await _claim(claims, "once:pay:order:7", over=held.token)
        await asyncio.sleep(10)
        shop.open.set()
        await settle_loop()

        assert shop.cancelled[0] is True


@run_by(_play)
async def test_a_long_run_keeps_its_key(app: StagedApp, shop: Shop, /) -> None:
    shop.open.clear()
    async with working(app, lease=9.0):
        await _send(app, "a", "7")
        await settle_loop()
        for _ in range(40):
            app.fake_clock.advance(1)
            await asyncio.sleep(1)
        held = await _claim(_state(app).claims, "once:pay:order:7", job_id="b")
        assert isinstance(held, Held)
        assert held.job_id == "a"
        assert held.left > 3
        assert await _state(app).leases.find(f"worker:{held.owner}") is not None
        shop.open.set()
        await settle_loop()


def _state(app: StagedApp) -> State:
    return open_memory_state(app._memory, BrokerOptions(clock=app.fake_clock))


async def _claim(
    claims: ClaimStore, name: str, *, job_id: str = "b", owner: str = "somebody", over: int | None = None
) -> Any:
    return await claims.claim(name, job_id=job_id, owner=owner, lease=LEASE, ttl=LEASE, over=over)


def _attempt(app: StagedApp, job: str, *, redelivered: bool = False) -> Attempt:
    body = b'{"task":"pay","id":"%s","args":["7"]}' % job.encode()
    delivery = FakeDelivery(body, redelivered=redelivered)
    return Attempt(delivery, decode_envelope(body), app.tasks["pay"], job)


def _gates(app: StagedApp, count: int) -> list[IdempotencyGuard]:
    state = _state(app)
    return [
        IdempotencyGuard(app, state.claims, state.leases, worker=f"w{number}", lease=LEASE) for number in range(count)
    ]


async def _enter_gate(gate: IdempotencyGuard, attempt: Attempt) -> Permit | Outcome:
    assert gate.concerns(attempt)
    return await gate.acquire(attempt)


def _is_pass(answer: Permit | Outcome) -> bool:
    return hasattr(answer, "release")


@run_by(_play)
async def test_the_redelivery_after_the_death_of_a_worker_takes_over_at_once(app: StagedApp, shop: Shop, /) -> None:
    one, two = _gates(app, 2)
    dead = _attempt(app, "a")
    assert _is_pass(await _enter_gate(one, dead))

    assert isinstance(await _enter_gate(two, _attempt(app, "a")), Snoozed)
    again = _attempt(app, "a", redelivered=True)
    late, held = await _enter_gate(two, again), dead.fence

    assert _is_pass(late)
    assert held is not None
    assert again.fence is not None
    assert again.fence[1] > held[1]
    assert app.fake_clock.now_ms() // 1000 == held[1] // 1_000_000


@run_by(_play)
async def test_two_copies_of_one_message_do_not_take_the_key_from_each_other_forever(
    app: StagedApp, shop: Shop, /
) -> None:
    gates = _gates(app, 3)
    permits = [await _enter_gate(gate, _attempt(app, "a", redelivered=True)) for gate in gates]

    assert [_is_pass(each) for each in permits] == [True, True, False]


@run_by(_play)
async def test_another_job_of_a_key_waits_until_the_worker_of_the_first_is_silent(
    app: StagedApp, shop: Shop, /
) -> None:
    one, two = _gates(app, 2)
    assert _is_pass(await _enter_gate(one, _attempt(app, "a")))
    assert isinstance(await _enter_gate(two, _attempt(app, "b", redelivered=True)), Snoozed)

    app.fake_clock.advance(16)
    await asyncio.sleep(0)

    assert _is_pass(await _enter_gate(two, _attempt(app, "b")))


@run_by(_play)
async def test_a_worker_recognises_a_redelivery_of_its_running_job(app: StagedApp, shop: Shop, /) -> None:
    (gate,) = _gates(app, 1)
    assert _is_pass(await _enter_gate(gate, _attempt(app, "a")))

    assert isinstance(await _enter_gate(gate, _attempt(app, "a", redelivered=True)), Snoozed)


@run_by(_play)
async def test_an_unknown_claim_of_this_worker_is_its_own(app: StagedApp, shop: Shop, /) -> None:
    (gate,) = _gates(app, 1)
    await _claim(_state(app).claims, "once:pay:order:7", owner=gate._owner)

    assert _is_pass(await _enter_gate(gate, _attempt(app, "a")))


@run_by(_play)
async def test_a_claim_held_across_a_data_loss_has_no_owner_and_keeps_its_lease(
    app: StagedApp, shop: Shop, /
) -> None:
    (gate,) = _gates(app, 1)
    await _state(app).claims.renew({"once:pay:order:7": 5}, lease=LEASE)

    assert isinstance(await _enter_gate(gate, _attempt(app, "a")), Snoozed)
    app.fake_clock.advance(LEASE)
    assert _is_pass(await _enter_gate(gate, _attempt(app, "a")))


@run_by(_play)
async def test_waits_grow_with_the_run_time_of_the_first_job(app: StagedApp, shop: Shop, /) -> None:
    one, two = _gates(app, 2)
    await _enter_gate(one, _attempt(app, "a"))
    await _state(app).leases.acquire(f"worker:{one._owner}x", owner="x", seconds=1)
    waits = list[float]()
    for _ in range(3):
        answer = await _enter_gate(two, _attempt(app, "b"))
        assert isinstance(answer, Snoozed)
        waits.append(answer.delay.total_seconds())
        app.fake_clock.advance(6)

    assert 0.3 < waits[0] < 0.7
    assert waits == sorted(waits)


@pytest.mark.parametrize(
    ("outcome", "is_free"),
    [
        (Retried(__import__("datetime").timedelta(0), ValueError()), True),
        (Dead("error", ValueError()), True),
        (Cancelled("no"), True),
        (Succeeded(None), False),
        (AlreadyDone("application/json", b"1"), True),
    ],
    ids=lambda value: type(value).__name__,
)
@run_by(_play)
async def test_only_success_keeps_the_key(app: StagedApp, shop: Shop, /, outcome: Outcome, is_free: bool) -> None:
    (gate,) = _gates(app, 1)
    entered = await _enter_gate(gate, _attempt(app, "a"))
    assert not isinstance(entered, Outcome)

    assert await entered.release(outcome, None)

    answer = await _claim(_state(app).claims, "once:pay:order:7")
    assert isinstance(answer, Granted) is is_free


@pytest.mark.parametrize("key", ["tick", "@north:tick"])
@run_by(_play)
async def test_the_key_of_an_occurrence_of_a_tenant_is_remembered_for_a_quarter_of_an_hour(
    app: StagedApp, shop: Shop, /, key: str
) -> None:
    (gate,) = _gates(app, 1)
    attempt = _attempt(app, "@north:tick")
    attempt.envelope = replace(attempt.envelope, tenant="north", key=key, meta={SCHEDULE_NAME: "tide"})
    entered = await _enter_gate(gate, attempt)
    assert not isinstance(entered, Outcome)
    await entered.release(Succeeded(None), None)

    app.fake_clock.advance(890)
    assert not _is_pass(await gate.acquire(attempt))
    app.fake_clock.advance(20)
    assert _is_pass(await gate.acquire(attempt))


def test_without_a_state_a_worker_with_keyed_tasks_refuses_to_start() -> None:
    app = TaskMQ("amqp://nowhere.invalid")
    app.task(name="pay", idempotency_key="order")(_takes_order)

    with pytest.raises(
        UnsupportedFeature, match=r"idempotency_key needs a state or, for submitted jobs, a store.*pay"
    ):
        Worker(app, WorkerConfig())


async def test_without_a_state_a_sent_job_with_a_key_is_a_dead_letter() -> None:
    with open_staged(with_state=False) as app:
        app.task(name="plain", queue="work")(_takes_order)
        async with working(app):
            await _send(app, "a", "7", task="plain", key="k")
            await settle_loop()
        (letter,) = await app.messages("work.dlq")
        assert letter.headers["x-taskmq-reason"] == "rejected"
        assert "this worker has no state" in str(letter.headers["x-taskmq-error"])


@run_by(_play)
async def test_no_guard_concerns_a_job_whose_key_the_store_has_claimed(app: StagedApp, shop: Shop, /) -> None:
    del shop
    without_state, with_state = StoredKeys(), _gates(app, 1)[0]
    attempt = _attempt(app, "a")
    invitation = Invitation(id="a", token=1, reports="taskmq.reports.shop.1", fence=7)
    attempt.envelope = replace(attempt.envelope, key="k", store=invitation)

    assert not without_state.concerns(attempt)
    assert not with_state.concerns(attempt)

    attempt.envelope = replace(attempt.envelope, store=replace(invitation, fence=None))
    assert with_state.concerns(attempt)
    assert without_state.concerns(attempt)
    assert isinstance(await without_state.acquire(attempt), Snoozed)
    attempt.envelope = replace(attempt.envelope, store=None)
    assert isinstance(await without_state.acquire(attempt), Dead)


async def _takes_order(order: str) -> None: ...


@run_by(_play)
async def test_a_job_id_that_is_sent_twice_is_one_job(app: StagedApp, shop: Shop, /) -> None:
    task = app.tasks["plain"]
    await task.options(job_id="order-7").asend("7")
    await task.options(job_id="order-7").asend("7 again")
    await task.options(job_id="order-7", tenant="north").asend("7 of north")
    await task.options(job_id="order-8", idempotency_key="own").asend("8")
    await task.options(job_id="order-9", idempotency_key="own").asend("9")

    async with working(app):
        await settle_loop()
        await _later(app)

    assert sorted(shop.runs) == ["plain 7", "plain 7 of north", "plain 8"]
    assert await _value(app, "order-7") == b'"plain"'


@run_by(_play)
async def test_a_job_id_that_has_failed_may_be_sent_again(app: StagedApp, shop: Shop, /) -> None:
    @app.task(name="refused", queue="work", retry=None)
    async def refused(order: str) -> str:
        shop.runs.append(order)
        raise ValueError(order)

    async with working(app):
        for _ in range(2):
            await app.tasks["refused"].options(job_id="order-7").asend("7")
            await settle_loop()

    assert shop.runs == ["7", "7"]


async def test_without_a_state_a_job_id_is_not_a_key_and_a_job_with_a_key_runs() -> None:
    with open_staged(with_state=False) as app:
        runs: list[str] = []

        @app.task(name="plain", queue="work")
        async def plain(order: str) -> None:
            runs.append(order)

        await app.tasks["plain"].options(job_id="order-7", queue="elsewhere").asend("7")
        (taken,) = await app.messages("elsewhere")
        await _send(app, "order-8", "8", task="plain", key="order-8")
        async with working(app):
            await settle_loop()

        assert decode_envelope(taken.body, taken.content_type or "").key is None
        assert runs == ["8"]


@run_by(_play)
async def test_each_tenant_has_its_own_keys(app: StagedApp, shop: Shop, /) -> None:
    for tenant in ("north", "south", "north"):
        await app.tasks["pay"].options(tenant=tenant, job_id="17").asend("17")
    await app.tasks["pay"].options(job_id="17").asend("17")

    async with working(app):
        for job_id in ("@north:17", "@south:17", "17"):
            assert await app.job(job_id).aresult(5) == f"order:17 by {job_id}"
        assert await app.job("17", tenant="south").aresult(5) == "order:17 by @south:17"

    assert shop.runs == ["17 fine"] * 3
