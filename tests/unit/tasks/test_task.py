import asyncio
import functools
import inspect
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from taskmq import Context, DuplicateTask, EncodeError, InvalidArguments, InvalidOption, TaskMQ, task
from taskmq.jobs.handle import Job
from taskmq.model.envelope import MSGPACK, Envelope
from taskmq.model.values.return_type import ReturnType
from taskmq.run.context import current_context
from taskmq.tasks.definition import define
from taskmq.tasks.task import AsyncTask, SyncTask
from taskmq.testing import FakeClock
from tests.unit.app_kit import message, messages, new_url, stats

_START = 1_700_000_000_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(_START)


@pytest.fixture
def app(clock: FakeClock) -> Iterator[TaskMQ]:
    with TaskMQ(new_url(), clock=clock) as app:
        yield app


def add(a: int, b: int = 2) -> int:
    """Return the sum."""
    return a + b


async def aadd(a: int, b: int = 2) -> int:
    return a + b


def call_of(envelope: Envelope) -> tuple[bytes, bytes]:
    return bytes(envelope.args), bytes(envelope.kwargs)


def run_in(context: Context, call: Callable[[], Any]) -> Any:
    """Call like a worker, inside the run's context."""
    token = current_context.set(context)
    try:
        return call()
    finally:
        current_context.reset(token)


def _forms(app: TaskMQ) -> list[Callable[[Callable[..., Any]], Any]]:
    return [app.task, app.task(), app.task(queue="sales"), task, task(), task(queue="sales")]


@pytest.mark.parametrize("form", range(6))
def test_every_form_of_the_decorator_makes_a_task_of_either_kind_of_function(app: TaskMQ, form: int) -> None:
    sync, coroutine = (_forms(app)[form](function) for function in (add, aadd))

    assert type(sync) is SyncTask
    assert type(coroutine) is AsyncTask
    assert [sync.name, coroutine.name] == [f"{__name__}.add", f"{__name__}.aadd"]
    assert sync.queue == ("sales" if form in (2, 5) else "default")
    assert sync.is_bound is coroutine.is_bound is (form < 3)


def test_a_task_looks_like_its_function() -> None:
    defined = task(add)

    assert defined.__name__ == "add"
    assert defined.__doc__ == "Return the sum."
    assert defined.__module__ == __name__
    assert defined.function is inspect.unwrap(defined) is add
    assert inspect.signature(defined) == inspect.signature(add)
    assert repr(defined) == f"<Task {__name__}.add>"


def test_the_name_of_a_nested_function_omits_its_enclosing_function() -> None:
    def inner_task() -> None: ...

    class Shop:
        @staticmethod
        def sell() -> None: ...

    here = f"{__name__}.test_the_name_of_a_nested_function_omits_its_enclosing_function"

    assert define(inner_task, {}).name == f"{here}.inner_task"
    assert define(Shop.sell, {}).name == f"{here}.Shop.sell"
    assert define(lambda: None, {}).name == f"{here}.lambda"


def test_an_explicit_name_wins() -> None:
    assert define(add, {"name": "sum"}).name == "sum"


@pytest.mark.parametrize("arguments", [["shop.py"], ["-m", "shop"], ["-m", "stores.shop"]])
def test_a_task_of_a_script_has_the_name_that_a_worker_imports(tmp_path: Path, arguments: list[str]) -> None:
    program = "from taskmq import task\n@task\ndef sell() -> None: ...\nprint(sell.name)\n"
    (tmp_path / "stores").mkdir()
    for file in ("shop.py", "stores/shop.py"):
        (tmp_path / file).write_text(program)

    done = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == ("stores.shop.sell" if "stores.shop" in arguments else "shop.sell")


@pytest.mark.parametrize("is_piped", [False, True])
def test_a_task_of_a_program_without_a_file_is_named_after_main(*, is_piped: bool) -> None:
    program = "from taskmq import task\n@task\ndef sell() -> None: ...\nprint(sell.name)\n"

    done = subprocess.run(
        [sys.executable] if is_piped else [sys.executable, "-c", program],
        input=program if is_piped else None,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert done.stdout.strip() == "__main__.sell"


def _generator() -> Iterator[int]:
    yield 1


async def _async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("function", [_generator, _async_generator])
def test_a_generator_cannot_be_a_task(function: Callable[[], Any]) -> None:
    with pytest.raises(InvalidOption, match=rf"^task {function.__name__}: a generator cannot be a task$"):
        define(function, {})


def test_an_object_whose_call_is_a_generator_cannot_be_a_task() -> None:
    class Rows:
        def __call__(self) -> Iterator[int]:
            yield 1

    with pytest.raises(InvalidOption, match="a generator cannot be a task"):
        define(Rows(), {"name": "rows"})


def test_a_task_cannot_be_made_of_a_task(app: TaskMQ) -> None:
    defined = app.task(add)

    with pytest.raises(InvalidOption, match=r"test_task\.add: it is a task already"):
        app.task(defined)


def test_an_invalid_option_is_refused_where_the_function_is_defined(app: TaskMQ) -> None:
    with pytest.raises(InvalidOption, match=r"^task add: unknown option 'quue'; did you mean 'queue'\?$"):
        app.task(quue="x")(add)  # type: ignore[call-overload]


def test_an_unencodable_signature_is_refused_at_its_definition(app: TaskMQ) -> None:
    def bad(value: complex) -> None: ...
    def bad_return() -> complex:
        return 1j

    with pytest.raises(InvalidOption, match=r"bad: parameter 'value' is a complex"):
        app.task(bad)
    with pytest.raises(InvalidOption, match=r"bad_return: the return type is a complex.*result=False"):
        app.task(bad_return)


def test_a_task_without_results_may_return_anything(app: TaskMQ) -> None:
    def odd() -> complex:
        return 1j

    assert isinstance(app.task(result=False)(odd).returns, ReturnType)


def test_a_callable_object_can_be_a_task_under_a_name() -> None:
    class Seller:
        def __call__(self, count: int) -> int:
            return count

    class Waiter:
        async def __call__(self, count: int) -> int:
            return count

    sync, coroutine = define(Seller(), {"name": "sell"}), define(Waiter(), {"name": "wait"})
    partial = define(functools.partial(add, b=3), {"name": "add-three"})

    assert type(sync) is SyncTask
    assert (sync.name, sync.__name__) == ("sell", "sell")
    assert type(coroutine) is AsyncTask
    assert partial(1) == 4  # type: ignore[operator]  # define gives the common base


def test_an_object_without_a_name_needs_one() -> None:
    with pytest.raises(InvalidOption, match=r"functools.partial.*is not a function and has no name; give it a name="):
        define(functools.partial(add, b=3), {})


def test_two_objects_under_one_name_are_distinguished_by_their_location(app: TaskMQ) -> None:
    app.task(name="add")(functools.partial(add, b=3))

    with pytest.raises(DuplicateTask, match=r"task 'add' is defined twice: by add in functools and by add in tests"):
        app.task(name="add")(add)


def test_a_task_is_still_the_plain_function(app: TaskMQ) -> None:
    assert app.task(add)(1) == 3
    assert app.task(name="again")(add)(1, b=1) == 2


def test_calling_an_async_task_returns_its_coroutine(app: TaskMQ) -> None:
    coroutine = app.task(aadd)(1)

    assert inspect.iscoroutine(coroutine)
    assert asyncio.run(coroutine) == 3


def test_calling_a_task_directly_checks_and_sends_nothing(app: TaskMQ) -> None:
    @app.task
    def same(value: int) -> int:
        return value

    assert same("x") == "x"  # type: ignore[arg-type,comparison-overlap]


def test_an_unbound_task_can_be_called() -> None:
    assert task(add)(1) == 3


def test_a_call_outside_a_worker_gets_a_detached_context(app: TaskMQ) -> None:
    @app.task(result=False)
    def sell(ctx: Context, item: str, *, count: int = 1) -> tuple[Context, str, int]:
        return ctx, item, count

    ctx, item, count = sell("a", count=2)

    assert (item, count) == ("a", 2)
    assert (ctx.task, ctx.job_id, ctx.attempt, ctx.max_attempts) == (sell.name, "", 1, 1)
    assert not ctx.cancelled
    assert ctx.deadline is None


def test_a_task_called_by_a_task_shares_its_context(app: TaskMQ) -> None:
    @app.task(result=False)
    async def sell(ctx: Context, item: str) -> Context:
        return ctx

    outer = Context.create_detached("outer")

    assert run_in(outer, lambda: asyncio.run(sell("a"))) is outer


def test_a_message_contains_what_a_worker_needs(app: TaskMQ) -> None:
    job = app.task(add).send(1, b=5)

    found = message(app)
    assert found.envelope == Envelope(
        v=1,
        id=job.id,
        task=f"{__name__}.add",
        args=found.envelope.args,
        kwargs=found.envelope.kwargs,
        enqueued=_START,
    )
    assert call_of(found.envelope) == (b"[1]", b'{"b":5}')
    assert (found.message_id, found.task, found.content_type) == (job.id, f"{__name__}.add", "application/json")
    assert found.headers == {}


def test_a_job_knows_its_task_and_its_id(app: TaskMQ) -> None:
    defined = app.task(add)

    job = defined.send(1)

    assert isinstance(job, Job)
    assert repr(job) == f"<Job {defined.name} {job.id}>"
    assert UUID(job.id).version == 7


def test_ids_are_ordered_by_time_and_unique(app: TaskMQ, clock: FakeClock) -> None:
    defined = app.task(add)
    ids = []
    for _ in range(20):
        ids.append(defined.send(1).id)
        clock.advance("1ms")

    assert ids == sorted(ids)
    assert len(set(ids)) == 20
    assert len({job.id for job in defined.send_many([(1,)] * 500)}) == 500


def test_asend_is_send_for_coroutines(app: TaskMQ) -> None:
    defined = app.task(aadd)

    async def main() -> str:
        async with app:
            return (await defined.asend(1, b=5)).id

    job_id = asyncio.run(main())

    assert message(app).envelope.id == job_id
    assert call_of(message(app).envelope) == (b"[1]", b'{"b":5}')


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 2500])
def test_send_many_sends_each_call_in_order(app: TaskMQ, count: int) -> None:
    jobs = app.task(add).send_many((i,) for i in range(count))

    assert len({job.id for job in jobs}) == count
    if count:
        found = [each.envelope for each in messages(app)]
        assert [each.id for each in found] == [job.id for job in jobs]
        assert [bytes(each.args) for each in found] == [b"[%d]" % i for i in range(count)]


def test_asend_many_is_send_many_for_coroutines(app: TaskMQ) -> None:
    defined = app.task(aadd)

    async def main() -> list[str]:
        async with app:
            return [job.id for job in await defined.asend_many((i, i) for i in range(1500))]

    ids = asyncio.run(main())

    assert [each.envelope.id for each in messages(app)] == ids


def test_send_many_is_lazy_and_sends_calls_before_an_invalid_one(app: TaskMQ) -> None:
    defined = app.task(add)
    taken = []

    def calls() -> Iterator[tuple[Any, ...]]:
        for i in range(5000):
            taken.append(i)
            yield (i if i != 1500 else "x",)

    with pytest.raises(InvalidArguments, match=r"at `a`"):
        defined.send_many(calls())

    assert len(taken) == 1501
    assert len(messages(app)) == 1500


def test_a_batch_cannot_share_one_job_id(app: TaskMQ) -> None:
    chosen = app.task(add).options(job_id="7")

    with pytest.raises(InvalidOption, match=r"test_task\.add: job_id names one call, not many"):
        chosen.send_many([(1,)])


def test_options_change_the_call_and_not_the_task(app: TaskMQ, clock: FakeClock) -> None:
    defined = app.task(queue="sales", tenant="acme", meta={"a": "1"})(add)

    defined.options(
        queue="urgent", priority=9, job_id="job-7", tenant="zen", meta={"b": "2"}, headers={"x": 1}, expires="1h"
    ).send(1)
    defined.send(1)

    special, usual = message(app, "urgent.p.high"), message(app, "sales")
    assert special.envelope.id == special.message_id == "@zen:job-7"
    assert (special.envelope.priority, special.envelope.tenant) == (9, "zen")
    assert special.envelope.meta == {"a": "1", "b": "2"}
    assert special.headers == {"x": 1, "x-taskmq-job-priority": 9, "x-taskmq-tenant": "zen"}
    assert special.envelope.expires == _START + 3_600_000
    assert (usual.envelope.priority, usual.envelope.tenant, usual.envelope.meta) == (None, "acme", {"a": "1"})
    assert usual.headers == {"x-taskmq-tenant": "acme"}


@pytest.mark.parametrize(
    ("priority", "queue"), [(None, "q"), (0, "q.p.low"), (2, "q.p.low"), (3, "q"), (6, "q"), (7, "q.p.high")]
)
def test_the_priority_selects_the_class_of_the_queue(app: TaskMQ, priority: int | None, queue: str) -> None:
    defined = app.task(queue="q")(add)

    (defined if priority is None else defined.options(priority=priority)).send(1)

    assert message(app, queue).envelope.priority == priority


def test_a_delayed_call_arrives_at_its_time_and_not_before(app: TaskMQ, clock: FakeClock) -> None:
    app.task(add).options(delay="10m").send(1)
    clock.advance("599s")
    before = messages(app)
    clock.advance("1s")

    assert before == []
    assert message(app).envelope.eta == _START + 600_000


def test_a_call_with_an_eta_arrives_at_that_instant(app: TaskMQ, clock: FakeClock) -> None:
    eta = datetime.fromtimestamp(_START / 1000, UTC) + timedelta(minutes=10)
    app.task(add).options(eta=eta).send(1)

    assert stats(app).delayed == 1
    clock.advance("10m")
    assert message(app).envelope.eta == _START + 600_000


def test_an_eta_in_the_past_means_at_once(app: TaskMQ) -> None:
    app.task(add).options(eta=datetime(2001, 1, 1, tzinfo=UTC)).send(1)

    assert message(app).envelope.eta == 978_307_200_000


def test_delay_and_expiry_of_a_task_start_at_each_send(app: TaskMQ, clock: FakeClock) -> None:
    defined = app.task(delay=5, expires="1m")(add)
    defined.send(1)
    clock.advance("1m")
    defined.send(1)
    clock.advance("1m")

    found = [each.envelope for each in messages(app)]

    assert [each.eta for each in found] == [_START + 5000, _START + 65_000]
    assert [each.expires for each in found] == [_START + 60_000, _START + 120_000]


def test_an_expiry_may_be_an_instant(app: TaskMQ) -> None:
    app.task(add).options(expires=datetime(2030, 1, 1, tzinfo=UTC)).send(1)

    assert message(app).envelope.expires == 1_893_456_000_000


def test_celery_argument_names_keep_their_meaning(app: TaskMQ, clock: FakeClock) -> None:
    defined = app.task(add)

    defined.delay(1, b=2)
    defined.apply_async((1,), {"b": 3}, countdown=10, expires=60, priority=0, queue="sales", task_id="7")
    defined.apply_async((1,), eta=datetime.fromtimestamp(_START / 1000 + 5, UTC))
    defined.apply_async(kwargs={"a": 1})
    defined.options(queue="other").apply_async((1,))
    clock.advance(10)

    assert [call_of(each.envelope) for each in messages(app)] == [
        (b"[1]", b'{"b":2}'),
        (b"[]", b'{"a":1}'),
        (b"[1]", b"{}"),
    ]
    full = message(app, "sales.p.low").envelope
    assert (full.id, full.eta, full.expires, full.priority) == ("7", _START + 10_000, _START + 60_000, 0)
    assert call_of(full) == (b"[1]", b'{"b":3}')
    assert len(messages(app, "other")) == 1


def test_countdown_and_eta_of_celery_exclude_each_other(app: TaskMQ) -> None:
    with pytest.raises(InvalidOption, match=r"delay and eta exclude each other"):
        app.task(add).apply_async((1,), countdown=1, eta=datetime(2030, 1, 1, tzinfo=UTC))


def test_mismatching_arguments_are_not_sent(app: TaskMQ) -> None:
    defined = app.task(add)
    loose: Any = app.task(name="loose")(lambda value: value)
    defined.send(1)

    with pytest.raises(InvalidArguments, match=r"at `b`"):
        defined.send(1, "x")  # type: ignore[arg-type]
    with pytest.raises(EncodeError, match=r"^task loose: argument 'value': .* object cannot be encoded: use "):
        loose.send(object())
    with pytest.raises(EncodeError, match=r"^task loose: argument 'value': a value of type object cannot be encoded"):
        loose.send(value=[{"deep": object()}])
    with pytest.raises(InvalidArguments, match=r"at `a`"):
        defined.send_many([("x",)])
    with pytest.raises(InvalidOption, match=r"queue name"):
        defined.options(queue="a.dlq")

    assert len(messages(app)) == 1


def test_a_task_without_an_app_cannot_be_sent_and_the_error_names_a_remedy() -> None:
    defined = task(add)

    for send in (
        lambda: defined.send(1),
        lambda: defined.send_many([(1,)]),
        lambda: defined.options(queue="x").send(1),
    ):
        with pytest.raises(InvalidOption, match=rf"add belongs to no app yet: call app.include\('{__name__}'\)"):
            send()


def test_a_context_is_never_sent(app: TaskMQ) -> None:
    @app.task
    def sell(ctx: Context, item: str) -> None: ...

    sell.send("a")

    assert call_of(message(app).envelope) == (b'["a"]', b"{}")


def test_a_job_sent_by_a_run_is_its_child(app: TaskMQ) -> None:
    defined = app.task(add)
    first = Context(Envelope(task="t"), job_id="first", max_attempts=1, queue="q", redelivered=False)
    second = Context(
        Envelope(task="t", root="first", parent="first"),
        job_id="second",
        max_attempts=1,
        queue="q",
        redelivered=False,
    )

    async def send_from_a_coroutine() -> None:
        async with app:
            await defined.asend(1)

    defined.send(1)
    run_in(first, lambda: defined.send(1))
    run_in(second, lambda: defined.send(1))
    run_in(second, lambda: asyncio.run(send_from_a_coroutine()))
    run_in(first, lambda: defined.send_many([(1,)]))

    assert [(each.envelope.root, each.envelope.parent) for each in messages(app)] == [
        (None, None),
        ("first", "first"),
        ("first", "second"),
        ("first", "second"),
        ("first", "first"),
    ]


def test_an_app_that_uses_messagepack_sends_all_kinds_of_calls(clock: FakeClock) -> None:
    with TaskMQ(new_url(), clock=clock, content_type="msgpack") as app:
        defined = app.task(name="t")(lambda a=None, *, b=None: None)
        defined.send()
        defined.send(b"\x00")
        defined.send(b=datetime(2030, 1, 1, tzinfo=UTC))

        found = messages(app)

        assert {each.content_type for each in found} == {MSGPACK}
        assert [defined.signature.decode(each.envelope.args, each.envelope.kwargs, MSGPACK) for each in found] == [
            ((), {}),
            ((b"\x00",), {}),
            ((), {"b": datetime(2030, 1, 1, tzinfo=UTC)}),
        ]


def _takes_later(value: "_Later") -> "_Later":
    return value


_early = task(_takes_later)
_was_resolved = _early.signature.is_resolved


@dataclass
class _Later:
    value: int


def test_a_type_that_is_defined_after_the_task_is_found_when_the_task_is_first_sent(app: TaskMQ) -> None:
    app.include(sys.modules[__name__])

    _early.send(_Later(3))

    assert not _was_resolved
    assert bytes(message(app).envelope.args) == b'[{"value":3}]'
    assert _early.returns.decode(b'{"value": 3}', "application/json") == _Later(3)
