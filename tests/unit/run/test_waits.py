"""Calls that suspend a job."""

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import pytest

from taskmq import Context
from taskmq.control_flow import Suspension
from taskmq.errors import EncodeError, InvalidOption, SignalTimeout, TooLarge, UnsupportedFeature
from taskmq.model.envelope import Envelope, Invitation
from taskmq.model.history.suspensions import decode_arguments
from tests.unit.run.test_journal import Shelf

_HOUR = timedelta(hours=1)


class _Approval(msgspec.Struct):
    by: str


def _run(shelf: Shelf) -> Context:
    invitation = Invitation(id="7", token=1, reports="taskmq.reports.app.0")
    return Context(
        Envelope(task="t", store=invitation), job_id="7", max_attempts=1, queue="q", redelivered=False, _writer=shelf
    )


def test_a_sleep_ends_its_run_once_the_instant_is_saved() -> None:
    shelf = Shelf()
    shelf.now = 5_000

    with pytest.raises(Suspension) as found:
        _run(shelf).sleep("1h")

    assert (found.value.until, found.value.left) == (3_605_000, _HOUR)
    assert str(found.value) == "asleep until 1970-01-01T01:00:05.000Z"
    assert shelf.values == {"sleep 1": b'[3605000,""]'}


async def test_a_later_run_returns_from_a_sleep_that_is_over_and_begins_the_next() -> None:
    shelf = Shelf({"sleep 1 a": b"4000", "sleep 1": b"9000"})
    shelf.now = 4_000
    run = _run(shelf)

    await run.asleep("9h", name="a")
    with pytest.raises(Suspension):
        await run.asleep("1s", name="a")

    assert shelf.values["sleep 2 a"] == b"5000"


def test_a_run_that_begins_too_early_sleeps_until_the_same_instant() -> None:
    shelf = Shelf({"sleep 1": b"4000"})
    shelf.now = 3_999

    with pytest.raises(Suspension) as found:
        _run(shelf).sleep("9h")

    assert (found.value.until, found.value.left) == (4_000, timedelta(milliseconds=1))


def test_a_sleep_lasts_until_an_instant() -> None:
    shelf = Shelf()
    shelf.now = 0
    run = _run(shelf)

    run.sleep(until=datetime(1970, 1, 1, tzinfo=UTC))
    with pytest.raises(Suspension) as found:
        run.sleep(until=datetime(1970, 1, 2, tzinfo=UTC))

    assert found.value.left == timedelta(days=1)


@pytest.mark.parametrize(
    ("duration", "until", "words"),
    [
        (None, None, "either a duration or until="),
        ("1h", datetime(2027, 1, 1, tzinfo=UTC), "either a duration or until="),
        (None, datetime(2027, 1, 1), "use a datetime with a time zone"),  # noqa: DTZ001 - the mistake
        (None, "tomorrow", "use a datetime with a time zone"),
        ("soon", None, "is not a duration"),
    ],
)
def test_a_sleep_without_a_clear_end_is_refused(duration: Any, until: Any, words: str) -> None:
    shelf = Shelf()

    with pytest.raises(InvalidOption, match=words):
        _run(shelf).sleep(duration, until=until)

    assert not shelf.begun


@pytest.mark.real_time
async def test_a_sleep_of_another_asyncio_task_or_thread_needs_a_name() -> None:
    shelf = Shelf()
    run = _run(shelf)

    with pytest.raises(InvalidOption, match=r"job 7: .* needs a name"):
        await run.asleep("1h")
    with pytest.raises(InvalidOption, match="needs a name"):
        await asyncio.to_thread(run.sleep, "1h")
    with pytest.raises(InvalidOption, match="name='a b': use 1 to 100 letters"):
        await run.asleep("1h", name="a b")
    assert not shelf.begun


@pytest.mark.real_time
async def test_two_asyncio_tasks_or_threads_cannot_wait_for_the_same_signal() -> None:
    run = _run(Shelf({"signal 1 x ok": b"1", "signal 2 y ok": b"2", "signal 3 z other": b"3"}))
    first = asyncio.create_task(run.await_for("ok"))
    second = asyncio.create_task(run.await_for("ok"))
    third = asyncio.create_task(run.await_for("other"))

    found = await asyncio.gather(first, second, third, return_exceptions=True)

    assert (found[0], found[2]) == (1, 3)
    assert isinstance(found[1], InvalidOption)
    with pytest.raises(InvalidOption, match=r"job 7: two asyncio tasks or threads .* the signal 'ok'"):
        await asyncio.to_thread(run.wait_for, "ok")


async def test_one_asyncio_task_waits_for_several_signals_of_a_name() -> None:
    run = _run(Shelf({"signal 1 x ok": b"1", "signal 2 y ok": b"2"}))

    async def wait() -> list[int]:
        return [await run.await_for("ok", int) for _ in range(2)]

    assert await asyncio.create_task(wait()) == [1, 2]


def test_a_run_that_read_its_last_heartbeat_cannot_sleep_or_wait() -> None:
    shelf = Shelf({"heartbeat": b"3", "sleep 1": b"0"})
    run = _run(shelf)
    run.sleep("1h")

    assert run.last_heartbeat == 3
    for call in (lambda: run.sleep("1h"), lambda: run.wait_for("ok")):
        with pytest.raises(UnsupportedFeature, match=r"job 7: .*\(\) after last_heartbeat .* last_checkpoint"):
            call()
    with pytest.raises(Suspension):
        run.continue_as_new(4)


async def test_concurrent_sleeps_find_their_values_in_any_order() -> None:
    shelf = Shelf()
    for name, duration in (("a", "1h"), ("b", "2h")):
        with pytest.raises(Suspension):
            await _run(shelf).asleep(duration, name=name)
    shelf.now += 3_600_000
    run = _run(shelf)

    with pytest.raises(Suspension) as found:
        await run.asleep("2h", name="b")
    await run.asleep("1h", name="a")

    assert found.value.left == _HOUR


def test_a_function_of_a_step_cannot_suspend_its_job() -> None:
    shelf = Shelf()
    run = _run(shelf)

    for call in (lambda: run.sleep("1h"), lambda: run.wait_for("ok"), lambda: run.step("inner", run.sleep, "1h")):
        with pytest.raises(UnsupportedFeature, match=r"\(\) in the function of step '(outer|inner)'"):
            run.step("outer", call)
    assert shelf.values == {}
    run.step("outer", lambda: 1)
    with pytest.raises(Suspension):
        run.sleep("1h")


async def test_asyncio_tasks_of_a_step_cannot_suspend_its_job() -> None:
    run = _run(Shelf())

    async def nap() -> None:
        await asyncio.create_task(run.asleep("1h", name="a"))

    with pytest.raises(UnsupportedFeature, match="in the function of step 'outer'"):
        await run.astep("outer", nap)


def test_a_run_reads_its_own_checkpoint_without_a_change_of_its_numbers() -> None:
    shelf = Shelf({"sleep 1": b"4000"})
    run = _run(shelf)

    run.sleep("1h")
    run.checkpoint("a")
    assert (run.last_checkpoint, shelf.values["position"]) == ("a", b'["a",{"sleep":1},{}]')
    with pytest.raises(Suspension):
        run.sleep("1h")
    assert "sleep 2" in shelf.values


def test_a_run_that_does_not_read_the_checkpoint_begins_its_numbers_again() -> None:
    shelf = Shelf()

    for _ in range(2):
        run = _run(shelf)
        run.checkpoint("a")
        with pytest.raises(Suspension):
            run.sleep("1h")

    assert shelf.values.keys() == {"checkpoint", "sleep 1"}


async def test_only_runs_of_stored_jobs_sleep() -> None:
    plain = Context.create_detached("shop.sell")

    with pytest.raises(UnsupportedFeature, match=r"shop\.sell was sent without one, or called as a plain function"):
        plain.sleep("1h")
    with pytest.raises(UnsupportedFeature, match="submit it with"):
        await plain.asleep("1h")


def test_a_wait_ends_its_run_until_the_signal_or_the_timeout() -> None:
    shelf = Shelf()
    shelf.now = 5_000

    with pytest.raises(Suspension) as found:
        _run(shelf).wait_for("ok", timeout="1h")

    assert found.value.left == _HOUR
    assert str(found.value) == "waiting for the signal 'ok' until 1970-01-01T01:00:05.000Z"
    assert shelf.values == {"wait 1 ok": b'[3605000,{},""]'}


async def test_a_wait_saves_the_form_of_its_type_again_when_that_has_changed() -> None:
    shelf = Shelf()
    shelf.now = 5_000

    with pytest.raises(Suspension):
        _run(shelf).wait_for("ok", int, timeout="1h")
    assert shelf.values == {"wait 1 ok": b'[3605000,{"type":"integer"}]'}
    with pytest.raises(Suspension):
        await _run(shelf).await_for("ok", str, timeout="2h")
    assert shelf.values == {"wait 1 ok": b'[3605000,{"type":"string"}]'}

    shelf.now = 3_605_000
    assert _run(shelf).wait_for("ok", bool, default=None) is None


async def test_a_wait_returns_the_signal_as_its_type_without_saving_anything() -> None:
    shelf = Shelf({"signal 1 a ok": b'{"by":"ada"}', "signal 2 b ok": b"7"})
    run = _run(shelf)

    assert await run.await_for("ok", _Approval) == _Approval("ada")
    assert run.wait_for("ok") == 7
    assert len(shelf.values) == 2


def test_a_value_of_another_type_is_refused() -> None:
    shelf = Shelf({"signal 1 a ok": b"7"})

    with pytest.raises(EncodeError, match="the value of the signal 'ok' does not fit its type"):
        _run(shelf).wait_for("ok", _Approval)


async def test_a_wait_that_is_over_raises_or_returns_its_default_in_every_later_run() -> None:
    shelf = Shelf({"wait 1 ok": b"[5000,{}]"})
    shelf.now = 5_000

    with pytest.raises(SignalTimeout, match=r"the signal 'ok' did not come in time"):
        await _run(shelf).await_for("ok", timeout="1h")
    assert shelf.values["timeout 1 ok"] == b"true"

    shelf.values["signal 1 late ok"] = b"7"
    assert _run(shelf).wait_for("ok", default="none") == "none"


def test_a_wait_without_a_timeout_has_no_end() -> None:
    shelf = Shelf()

    with pytest.raises(Suspension, match=r"^waiting for the signal 'ok'$"):
        _run(shelf).wait_for("ok")
    with pytest.raises(Suspension, match=r"^waiting for the signal 'ok'$"):
        _run(shelf).wait_for("ok")


def test_a_wait_for_an_odd_name_is_refused() -> None:
    with pytest.raises(InvalidOption, match="use 1 to 100 letters"):
        _run(Shelf()).wait_for("a b")


async def test_new_arguments_delete_all_values_but_the_signals_that_were_not_taken() -> None:
    values = {"signal 1 a ok": b"1", "signal 2 b ok": b"2", "sleep 1": b"3", "step x": b"4"}
    shelf = Shelf(dict(values))
    run = _run(shelf)
    run.step("y", int)
    assert run.wait_for("ok") == 1

    with pytest.raises(Suspension) as found:
        await run.acontinue_as_new(7, day=date(2027, 1, 31))

    new = decode_arguments(shelf.values["arguments"])
    assert (bytes(new.args), bytes(new.kwargs)) == (b"[7]", b'{"day":"2027-01-31"}')
    assert new.drops == ["signal 1 a ok", "sleep 1", "step x", "step y"]
    assert (found.value.left, str(found.value)) == (timedelta(0), "continuing with new arguments")


def test_new_arguments_that_are_too_large_are_refused() -> None:
    with pytest.raises(TooLarge, match="the value 'arguments'"):
        _run(Shelf()).continue_as_new("x" * 300_000)
