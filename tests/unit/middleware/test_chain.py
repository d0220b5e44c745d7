import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress

import msgspec
import pytest
from msgspec.structs import replace

from taskmq import TaskMQ
from taskmq.middleware.chain import Middleware, Proceed, Sending, attach_all, execute_chain, send_chain
from taskmq.model.envelope import JSON, Envelope
from taskmq.run.context import Context
from taskmq.run.execution import Execution
from tests.unit.app_kit import Message, message, new_url


class Named(Middleware):
    """Appends its calls, in order, to a shared list."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    def send(self, sending: Sending) -> AbstractContextManager[object] | None:
        self.log.append(f"{self.name} called")
        return self._around()

    @contextmanager
    def _around(self) -> Generator[None, None, None]:
        self.log.append(f"{self.name} entered")
        try:
            yield
        except BaseException as error:
            self.log.append(f"{self.name} saw {error!r}")
            raise
        self.log.append(f"{self.name} left")

    async def execute(self, execution: Execution, proceed: Proceed) -> object:
        self.log.append(f"{self.name} before")
        try:
            return f"{self.name}({await proceed(execution)})"
        finally:
            self.log.append(f"{self.name} after")


def sending() -> Sending:
    return Sending(Envelope(task="t"), "q", JSON)


def execution(*args: object) -> Execution:
    return Execution(
        Context.create_detached("t"), lambda *values: values, args, {}, Envelope(task="t"), JSON, timeout=None
    )


async def call(given: Execution) -> object:
    return given.function(*given.args, **given.kwargs)


def test_the_first_middleware_is_the_outermost_around_a_send() -> None:
    log: list[str] = []

    with send_chain([Named("outer", log), Named("inner", log)])(sending()):
        log.append("sent")

    assert log == [
        "outer called",
        "outer entered",
        "inner called",
        "inner entered",
        "sent",
        "inner left",
        "outer left",
    ]


def test_a_failed_send_is_seen_from_the_inside_out() -> None:
    log: list[str] = []
    chain = send_chain([Named("outer", log), Named("inner", log)])

    def send() -> None:
        with chain(sending()):
            raise LookupError

    with pytest.raises(LookupError):
        send()

    assert log[-2:] == ["inner saw LookupError()", "outer saw LookupError()"]


def test_a_send_without_middleware_is_not_wrapped() -> None:
    chain = send_chain([])

    assert chain(sending()) is chain(sending())
    with chain(sending()):
        pass


def test_middleware_that_does_not_override_send_is_not_called() -> None:
    class ExecuteOnly(Middleware):
        async def execute(self, execution: Execution, proceed: Proceed) -> object:
            return await proceed(execution)

    assert send_chain([ExecuteOnly(), Middleware()])(sending()) is send_chain([])(sending())
    assert Middleware().send(sending()) is None


def test_middleware_may_omit_its_context() -> None:
    class Silent(Middleware):
        def send(self, sending: Sending) -> None:
            sending.queue = "changed"

    given = sending()
    with send_chain([Silent()])(given):
        pass

    assert given.queue == "changed"


class Refusing(Middleware):
    def send(self, sending: Sending) -> None:
        raise LookupError("refused")


class Swallowing(Middleware):
    def send(self, sending: Sending) -> AbstractContextManager[object]:
        return suppress(LookupError)


def test_a_refusal_by_middleware_ends_the_send_and_outer_middleware_sees_it() -> None:
    log: list[str] = []

    with pytest.raises(LookupError, match=r"^refused$"):
        send_chain([Named("outer", log), Refusing(), Named("inner", log)])(sending())

    assert log == ["outer called", "outer entered", "outer saw LookupError('refused')"]


def test_a_swallowed_refusal_is_an_error_because_nothing_would_be_sent() -> None:
    with pytest.raises(LookupError, match=r"^refused$"):
        send_chain([Swallowing(), Refusing()])(sending())


class Stamping(Middleware):
    """Changes every field that can be changed."""

    def send(self, sending: Sending) -> None:
        meta = {**(sending.envelope.meta or {}), "stamp": "1"}
        sending.envelope = msgspec.structs.replace(sending.envelope, meta=meta, trace="00-1-2-01", priority=9)
        sending.queue = "stamped"
        sending.headers["x-stamp"] = 1


def _sends(app: TaskMQ) -> list[Callable[[], object]]:
    def sell(item: str) -> None: ...

    defined = app.task(name="sell", meta={"a": "b"})(sell)

    async def in_loop(send: Callable[[], object]) -> None:
        async with app:
            await send()  # type: ignore[misc]

    return [
        lambda: defined.send("a"),
        lambda: defined.send_many([("a",)]),
        lambda: asyncio.run(in_loop(lambda: defined.asend("a"))),
        lambda: asyncio.run(in_loop(lambda: defined.asend_many([("a",)]))),
    ]


@pytest.mark.parametrize("way", range(4))
def test_changes_by_middleware_are_sent_in_every_way_of_sending(way: int) -> None:
    with TaskMQ(new_url(), middleware=[Stamping()]) as app:
        _sends(app)[way]()

        found: Message = message(app, "stamped.p.high")

    assert (found.envelope.meta, found.envelope.trace) == ({"a": "b", "stamp": "1"}, "00-1-2-01")
    assert found.headers == {"x-stamp": 1, "x-taskmq-job-priority": 9}


def test_headers_of_one_send_do_not_leak_into_the_next() -> None:
    class Counting(Middleware):
        def send(self, sending: Sending) -> None:
            assert "x-count" not in sending.headers
            sending.headers["x-count"] = 1

    with TaskMQ(new_url(), middleware=[Counting()]) as app:
        defined = app.task(name="t")(lambda: None).options(headers={"a": 1})
        defined.send()
        defined.send()


def test_the_first_middleware_is_the_outermost_around_a_run() -> None:
    log: list[str] = []
    chain = execute_chain([Named("outer", log), Named("inner", log)], call)

    result = asyncio.run(_await(chain, execution(7)))

    assert result == "outer(inner((7,)))"
    assert log == ["outer before", "inner before", "inner after", "outer after"]


async def _await(chain: Proceed, given: Execution) -> object:
    return await chain(given)


def test_without_middleware_the_chain_is_the_executor_itself() -> None:
    class SendOnly(Middleware):
        def send(self, sending: Sending) -> None: ...

    assert execute_chain([], call) is call
    assert execute_chain([SendOnly(), Middleware()], call) is call


def test_the_default_middleware_passes_a_run_through() -> None:
    assert asyncio.run(_await(lambda given: Middleware().execute(given, call), execution(7))) == (7,)


def test_middleware_may_replace_arguments_and_result() -> None:
    class Doubling(Middleware):
        async def execute(self, execution: Execution, proceed: Proceed) -> object:
            return [await proceed(replace(execution, args=(*execution.args, "more")))]

    assert asyncio.run(_await(execute_chain([Doubling()], call), execution(7))) == [(7, "more")]


def test_an_error_of_middleware_or_task_propagates_outward() -> None:
    log: list[str] = []

    class Failing(Middleware):
        async def execute(self, execution: Execution, proceed: Proceed) -> object:
            raise LookupError

    with pytest.raises(LookupError):
        asyncio.run(_await(execute_chain([Named("outer", log), Failing()], call), execution()))

    assert log == ["outer before", "outer after"]


# In a separate process


class Attaching(Middleware):
    """Records the carried values; refuses `no`."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    def attach(self, carry: Mapping[str, str]) -> AbstractContextManager[object]:
        if carry.get(self.name) == "no":
            raise RuntimeError(self.name)
        return self._around(carry.get(self.name, ""))

    @contextmanager
    def _around(self, text: str) -> Generator[None, None, None]:
        self.log.append(f"{self.name} has {text}")
        try:
            yield
        finally:
            self.log.append(f"{self.name} left")


def test_carried_values_reach_every_middleware_around_the_function() -> None:
    log: list[str] = []

    with attach_all([Attaching("a", log), Middleware(), Attaching("b", log)], {"a": "1", "b": "2"}):
        log.append("function")

    assert log == ["a has 1", "b has 2", "function", "b left", "a left"]


def test_without_carried_values_no_middleware_is_called() -> None:
    log: list[str] = []

    for nothing in (None, dict[str, str]()):
        with attach_all([Attaching("a", log)], nothing):
            pass

    assert log == []


def test_middleware_that_refuses_a_carried_value_leaves_nothing_open() -> None:
    log: list[str] = []

    with pytest.raises(RuntimeError, match="b"):
        attach_all([Attaching("a", log), Attaching("b", log)], {"b": "no"})

    assert log == ["a has ", "a left"]
