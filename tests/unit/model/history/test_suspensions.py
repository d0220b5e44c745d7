"""Calls that suspend a job, the values that earlier runs saved of them, and signals."""

import msgspec
import pytest

from taskmq.control_flow import CallMismatch
from taskmq.errors import InvalidOption
from taskmq.model.history.journals import LARGEST_SAVED
from taskmq.model.history.signals import (
    MOST_SAVED,
    JobSignal,
    SignalEffect,
    check_signal,
    count_signals,
    place_signal,
)
from taskmq.model.history.suspensions import (
    NewArguments,
    RunWaits,
    SleepCall,
    decides_form,
    decode_arguments,
    describe_sleep,
    describe_wait,
    encode_sleep,
    encode_wait,
    find_checkpoint,
    find_form,
    is_awaited,
)
from taskmq.model.units import LAST_INSTANT

_SIGNAL = JobSignal("ok", "me", b"true")


def _takes(values: dict[str, bytes], *names: str) -> list[bytes | None]:
    waits = RunWaits()
    return [waits.next_wait(name, values).value for name in names]


def test_a_sleep_without_a_saved_value_is_in_its_first_run() -> None:
    assert RunWaits().next_sleep({"sleep 2": b"7"}) == SleepCall("sleep 1", None)


def test_each_sleep_of_a_run_finds_the_value_of_its_own_number() -> None:
    waits, values = RunWaits(), {"sleep 1": b"1000", "sleep 2": b"2000"}

    found = [waits.next_sleep(values) for _ in range(3)]

    assert found == [SleepCall("sleep 1", 1000), SleepCall("sleep 2", 2000), SleepCall("sleep 3", None)]


def test_each_wait_takes_the_next_signal_of_its_name() -> None:
    values = {"signal 10 c ok": b"3", "signal 2 a ok": b"1", "signal 3 b stop": b"2", "step signal": b"0"}

    assert _takes(values, "ok", "stop", "ok", "ok") == [b"1", b"2", b"3", None]


def test_a_wait_that_timed_out_leaves_a_late_signal_to_the_next() -> None:
    values = {"wait 1 ok": encode_wait(70, {}), "timeout 1 ok": b"true", "signal 1 late ok": b"1"}
    waits = RunWaits()

    first, second = waits.next_wait("ok", values), waits.next_wait("ok", values)

    assert (first.until, first.has_timed_out, first.value) == (70, True, None)
    assert (second.key, second.until, second.has_timed_out, second.value) == ("wait 2 ok", None, False, b"1")


def test_a_wait_reads_the_instant_that_is_saved_with_a_form() -> None:
    values = {"wait 1 ok": encode_wait(70, {"type": "integer"}), "wait 1 stop": encode_wait(80, {})}
    waits = RunWaits()

    assert (waits.next_wait("ok", values).until, waits.next_wait("stop", values).until) == (70, 80)
    assert values == {"wait 1 ok": b'[70,{"type":"integer"}]', "wait 1 stop": b"[80,{}]"}


def test_a_signal_has_the_form_of_the_wait_that_will_take_it() -> None:
    values = {
        "wait 1 ok": encode_wait(70, {"type": "integer"}), "timeout 1 ok": b"true",
        "wait 3 ok": encode_wait(90, {"type": "string"}), "signal 1 a ok": b"1", "signal 2 b stop": b"2",
    }  # fmt: skip

    assert find_form(values, _SIGNAL) == {"type": "string"}
    assert find_form({**values, "signal 3 you ok": b"3"}, _SIGNAL) is None
    assert find_form({**values, "signal 3 me ok": b"3"}, _SIGNAL) is None
    assert find_form({"wait 1 ok": encode_wait(70, {})}, _SIGNAL) is None


def test_a_signal_has_the_form_of_the_first_wait_behind_the_checkpoint() -> None:
    values = {
        "wait 1 ok": encode_wait(70, {"type": "integer"}), "signal 1 a ok": b"1", "timeout 2 ok": b"true",
        "position": b'[1,{"wait ok":3},{"ok":1}]', "timeout 4 ok": b"true", "signal 2 b ok": b"2",
        "wait 6 ok": encode_wait(90, {"type": "string"}),
    }  # fmt: skip

    assert find_form(values, _SIGNAL) == {"type": "string"}
    # It depends on these values alone, and on the names of the others.
    others = {key: b"kept elsewhere" for key in values if not decides_form(key, _SIGNAL)}
    assert others.keys() == {"signal 1 a ok", "timeout 2 ok", "timeout 4 ok", "signal 2 b ok"}
    assert find_form({**values, **others}, _SIGNAL) == {"type": "string"}


def test_a_repeated_signal_has_no_form_to_fit_again() -> None:
    values = {"wait 2 ok": encode_wait(70, {"type": "integer"}), "signal 1 me ok": b"1"}

    assert find_form(values, _SIGNAL) is None


def test_a_signal_gets_the_next_number_of_its_job() -> None:
    assert place_signal({}, _SIGNAL) == SignalEffect("signal 1 me ok", True)
    assert place_signal({"signal 7 you stop": 1, "step a": 9}, _SIGNAL) == SignalEffect("signal 8 me ok", True)


def test_a_second_signal_with_the_same_id_is_the_first() -> None:
    effect = place_signal({"signal 7 me stop": 1}, _SIGNAL)

    assert effect == SignalEffect("signal 7 me stop", False)
    assert effect.name == "stop"


def test_a_job_without_room_takes_no_signal() -> None:
    full = SignalEffect("", False)

    assert place_signal({f"step {number}": 1 for number in range(MOST_SAVED)}, _SIGNAL) == full
    assert place_signal({"step a": LARGEST_SAVED}, _SIGNAL) == full
    assert place_signal({f"step {number}": 1 for number in range(MOST_SAVED - 1)}, _SIGNAL).is_new


def test_only_signals_among_the_saved_values_are_counted() -> None:
    assert count_signals(["signal 1 a ok", "step signal 2", "wait 1 ok", "signal 2 b other"]) == 2
    assert count_signals([]) == 0


@pytest.mark.parametrize("text", ["", "a b", "x" * 101, "größe", "a\n"])
def test_a_signal_with_an_odd_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="use 1 to 100 letters"):
        check_signal(text, what="signal")

    assert check_signal("order-17:ok", what="signal") == "order-17:ok"


def test_a_suspended_job_says_what_it_waits_for() -> None:
    assert describe_sleep(1_000) == "asleep until 1970-01-01T00:00:01.000Z"
    assert describe_wait("ok", 1_000) == "waiting for the signal 'ok' until 1970-01-01T00:00:01.000Z"
    assert describe_wait("ok", LAST_INSTANT) == "waiting for the signal 'ok'"


def test_a_signal_is_awaited_by_jobs_that_wait_for_its_name() -> None:
    assert is_awaited("ok", describe_wait("ok", 1_000))
    assert not is_awaited("o", describe_wait("ok", 1_000))
    assert not is_awaited("ok", describe_sleep(1_000))


def test_signals_that_no_call_has_taken_are_known() -> None:
    waits, values = RunWaits(), {"signal 1 a ok": b"1", "signal 2 b ok": b"2", "step x": b"3"}
    waits.next_wait("ok", values)

    assert waits.unused_signals(values) == {"signal 2 b ok"}


def test_a_checkpoint_without_numbered_calls_is_saved_as_it_is() -> None:
    waits, values = RunWaits(), {"checkpoint": b"1"}
    waits.resume(values)

    assert waits.place_checkpoint(b"2", values) == ("checkpoint", b"2")
    assert (find_checkpoint(values), find_checkpoint({})) == (b"1", None)


def test_a_newer_checkpoint_replaces_one_with_numbered_calls() -> None:
    values = {"position": b'["a",{"sleep":1},{}]', "checkpoint": b'"old"'}

    assert find_checkpoint(values) == b'"a"'
    assert RunWaits().place_checkpoint(b'"b"', values) == ("position", b'["b",{},{}]')


def test_a_resumed_run_continues_the_numbers_of_its_checkpoint() -> None:
    first, values = RunWaits(), {"signal 1 a ok": b"1", "signal 2 b ok": b"2", "sleep 1": b"7", "sleep 1 a": b"8"}
    first.resume(values)
    first.next_sleep(values)
    first.next_wait("ok", values)
    name, position = first.place_checkpoint(b'"here"', values)
    values[name] = position
    second = RunWaits()
    second.resume(values)

    assert find_checkpoint(values) == b'"here"'
    assert second.unused_signals(values) == {"signal 2 b ok"}
    assert (second.next_sleep(values).key, second.next_sleep(values, name="a").key) == ("sleep 2", "sleep 1 a")
    found = second.next_wait("ok", values)
    assert (found.key, found.value) == ("wait 2 ok", b"2")


def test_calls_behind_a_new_checkpoint_of_a_resumed_run_get_no_earlier_value() -> None:
    values = {
        "checkpoint": b"1",
        "sleep 1": b"7",
        "sleep 3 a": b"8",
        "wait 2 ok": encode_wait(70, {}),
        "step x 9": b"1",
    }
    run = RunWaits()
    run.resume(values)

    assert run.place_checkpoint(b"2", values) == ("position", b'[2,{"sleep":1,"sleep a":3,"wait ok":2},{}]')
    assert run.next_sleep(values) == SleepCall("sleep 2", None)
    assert run.next_sleep(values, name="a") == SleepCall("sleep 4 a", None)
    assert run.next_wait("ok", values).until is None


def test_new_arguments_are_read_back() -> None:
    new = NewArguments(msgspec.Raw(b"[1]"), msgspec.Raw(b"{}"), ["step x"])

    assert decode_arguments(msgspec.json.encode(new)) == new


class _Run:
    """A run of a job: its calls in order, with the values that earlier runs saved."""

    def __init__(self, values: dict[str, bytes] | None = None) -> None:
        self.values = values or {}
        self.waits = RunWaits()
        self.saved = dict(self.values)

    def step(self, name: str, *, is_own: bool = True) -> None:
        key = f"step {name}"
        self.waits.next_step(key, self.values, is_own=is_own)
        self.waits.end_step(key)
        self.saved[key] = b"1"

    def sleep(self, *, is_own: bool = True) -> None:
        call = self.waits.next_sleep(self.values, is_own=is_own)
        self.saved[call.key] = encode_sleep(70 if call.until is None else call.until, call.after)

    def wait(self, name: str, *, is_own: bool = True) -> None:
        call = self.waits.next_wait(name, self.values, is_own=is_own)
        if call.value is None:
            self.saved[call.key] = encode_wait(70, {}, call.after)


def _first_run() -> dict[str, bytes]:
    run = _Run()
    run.step("a")
    run.sleep()
    run.step("b")
    run.wait("ok")
    return run.saved


def test_waiting_calls_are_saved_with_the_call_before_them() -> None:
    found = _first_run()
    assert (found["sleep 1"], found["wait 1 ok"]) == (b'[70,"step a"]', b'[70,{},"step b"]')
    run = _Run()
    run.sleep()
    assert run.saved == {"sleep 1": b'[70,""]'}


def test_a_run_with_the_same_calls_gets_its_saved_values() -> None:
    run = _Run(_first_run())
    run.step("a")
    run.sleep()
    run.step("b")
    run.wait("ok")
    run.step("c")
    run.sleep()

    assert run.saved == {**_first_run(), "step c": b"1", "sleep 2": b'[70,"step c"]'}


@pytest.mark.parametrize(
    ("calls", "difference"),
    [
        ("sleep", "sleep 1 was saved after step 'a', and now comes after the start"),
        ("step b, sleep", "sleep 1 was saved after step 'a', and now comes after step 'b'"),
        ("step a, step x, sleep", "sleep 1 was saved after step 'a', and now comes after step 'x'"),
        ("step a, sleep, wait ok", "wait 1 for 'ok' was saved after step 'b', and now comes after sleep 1"),
        ("step a, sleep, step ok", "wait 1 for 'ok' was saved, and step 'ok' is now called"),
        ("wait a", "step 'a' was saved, and wait 1 for 'a' is now called"),
        ("step a, sleep, wait b", "step 'b' was saved, and wait 1 for 'b' is now called"),
    ],
)
def test_a_run_whose_calls_differ_from_the_saved_ones_is_a_mismatch(calls: str, difference: str) -> None:
    run = _Run(_first_run())
    *before, last = [call.split() for call in calls.split(", ")]
    for name, *args in before:
        getattr(run, name)(*args)

    with pytest.raises(CallMismatch) as found:
        getattr(run, last[0])(*last[1:])
    assert str(found.value) == f"its calls differ from those of an earlier run: {difference}"


def test_calls_of_other_flows_are_neither_saved_with_an_order_nor_compared() -> None:
    run = _Run(_first_run())
    run.step("x", is_own=False)
    run.sleep()
    run.wait("ok")
    run.step("ok")
    run.wait("a")
    assert run.saved["wait 1 a"] == b"[70,{}]"

    first = _Run()
    first.step("a", is_own=False)
    first.sleep()
    assert first.saved["sleep 1"] == b"70"


def test_calls_after_a_failed_step_are_saved_without_an_order() -> None:
    first = _Run()
    first.waits.next_step("step a", {}, is_own=True)
    first.waits.forget_order()
    first.step("pay")
    first.wait("ok")
    assert first.saved == {"step pay": b"1", "wait 1 ok": b"[70,{}]"}

    # The step succeeds, so the task takes another branch.
    run = _Run(first.saved)
    run.step("a")
    run.step("ok")
    run.wait("pay")
    assert run.saved["wait 1 pay"] == b'[70,{},"step ok"]'


def test_calls_inside_of_a_step_do_not_change_the_order() -> None:
    first = _Run()
    first.waits.next_step("step outer", {}, is_own=True)
    first.step("inner")
    first.waits.end_step("step outer")
    first.saved["step outer"] = b"1"
    first.sleep()
    run = _Run(first.saved)
    run.step("outer")
    run.sleep()

    assert run.saved["sleep 1"] == b'[70,"step outer"]'


def test_a_step_may_have_the_name_of_a_signal() -> None:
    first = _Run()
    first.step("pay")
    first.wait("pay")
    first.sleep()
    second = _Run({**first.saved, "signal 1 me pay": b"1"})
    second.step("pay")
    second.wait("pay")
    second.sleep()
    assert second.saved == {**first.saved, "signal 1 me pay": b"1"}

    third = _Run()
    third.wait("go")
    third.step("go")
    third.sleep()
    fourth = _Run(third.saved)
    fourth.wait("go")
    fourth.step("go")
    fourth.sleep()
    assert fourth.saved == third.saved
