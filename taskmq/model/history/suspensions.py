"""Calls that suspend their job, and the values that they leave. Pure.

    first run:  sleep     -> saves the instant under `sleep 1`   -> the run ends, and the job waits for the instant
    next run:   sleep     -> finds the instant in the past       -> returns
                wait_for  -> saves when it times out, `wait 1 approval` -> the run ends, and the job waits
    a sender:   signal    -> `signal 1 ID approval`              -> the job runs again
    next run:   wait_for  -> finds the value                     -> returns

    any run:    continue_as_new -> `arguments`, and the other values are deleted -> the job runs from its start

A job runs again from the start of its function. Its calls get their values by name and number: the second `sleep` of
a run finds the value of the second `sleep` of the run before. A wait takes the first signal of its name that no wait
before it has taken. One that timed out takes none, in later runs either (`timeout 1 approval`).

A checkpoint is saved with the numbers of the calls before it. A run that reads it continues with these numbers, so
the calls behind the checkpoint find their values. When it saves the next checkpoint, all saved calls are before that
one: no call behind it gets a value that was saved before it.

A wait saves its form with the instant. Once it is saved, the signal for this wait has to fit it.

A sleep and a wait also save the name of the call before them. If the code has changed when the job runs again, and
another call comes before them, they would get the value of another call: the run raises `CallMismatch`, and its job
is held. Only calls of one flow have an order. Once another asyncio task or thread of the run makes a call, or a step
fails, which the next run repeats, calls are neither saved with an order nor compared. Sleeps of other flows have
names, and are numbered by name.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from taskmq.control_flow import CallMismatch
from taskmq.model.history.signals import JobSignal, keys_of_signal, parse_signals
from taskmq.model.units import LAST_INSTANT, instant_text

SUSPENDED: Final = "Suspended"
"""Error type in the report of a run that was suspended; the message is the reason."""
MISMATCH: Final = "CallMismatch"
"""Error type in the report of a run that is held; the message is the reason."""
ARGUMENTS: Final = "arguments"
"""Name of the saved value that replaces the job's arguments, see `NewArguments`."""
CONTINUED: Final = "continuing with new arguments"
"""Reason of a suspension that ends at once."""

CHECKPOINT: Final = "checkpoint"
"""Name of the checkpoint of a run without numbered calls."""
POSITION: Final = "position"
"""Name of the checkpoint of a run with numbered calls, which are saved with it. It is newer than `CHECKPOINT`."""
STEP: Final = "step "
"""Prefix of the names of steps' values."""
_SLEEP: Final = "sleep"


class NewArguments(msgspec.Struct, frozen=True):
    """The arguments with which a job continues.

    Attributes:
        args, kwargs: as in an envelope.
        drops: names of the saved values that are deleted with it: all but signals that no call has taken.
    """

    args: msgspec.Raw
    kwargs: msgspec.Raw
    drops: list[str]


class _SavedSleep(msgspec.Struct, frozen=True, array_like=True):
    """The end of a sleep, and the call before it."""

    until: int
    after: str | None = None


class _SavedWait(msgspec.Struct, frozen=True, array_like=True):
    """The instant at which a wait times out, and the JSON Schema of its signal; an empty one accepts anything.

    Attributes:
        after: the call before it; "": it is the first; None: unknown.
    """

    until: int
    form: dict[str, Any]
    after: str | None = None


class _Position(msgspec.Struct, frozen=True, array_like=True):
    """A checkpoint.

    Attributes:
        value: as JSON.
        calls: number of the last call before it, by kind and name.
        taken: number of signals that were taken before it, by name.
    """

    value: msgspec.Raw
    calls: dict[str, int]
    taken: dict[str, int]


_START: Final = _Position(msgspec.Raw(b"null"), {}, {})


class SleepCall(NamedTuple):
    """A call of `sleep`.

    Attributes:
        key: name of its saved value.
        until: the saved instant, ms since the epoch; None: this is its first run.
        after: name of the call before it, to be saved with it; "": it is the first; None: unknown.
    """

    key: str
    until: int | None
    after: str | None = None


class WaitCall(NamedTuple):
    """A call that waits for a signal.

    Attributes:
        key: name of the instant at which it times out.
        timeout_key: name under which it is saved that it timed out.
        until: the saved instant, ms since the epoch; None: this is its first run.
        has_timed_out: whether an earlier run saw the timeout.
        value: the signal's, as JSON; None: there is none yet.
        after: as of `SleepCall`.
    """

    key: str
    timeout_key: str
    until: int | None
    has_timed_out: bool
    value: bytes | None
    after: str | None = None


class RunWaits:
    """Numbers and order of the calls of one run, and the signals that they have taken.

    `is_own` is whether the flow of the task's function makes the call, not another asyncio task or thread.
    """

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()
        self._is_resumed = False
        self._steps: set[str] = set()
        self._last = ""
        self._is_ordered = True

    def forget_order(self) -> None:
        """Note that a step failed: the next run calls it again, and other calls may follow then."""
        self._is_ordered = False

    def end_step(self, key: str) -> None:
        """Note that a step is saved: the calls inside of it do not come again."""
        self._last = key

    def next_step(self, key: str, values: Mapping[str, bytes], *, is_own: bool = False) -> None:
        """Note a call of a step.

        Raises:
            CallMismatch: an earlier run waited for a signal of its name instead.
        """
        self._follow(key, None, is_own=is_own)
        self._steps.add(key)
        name = key.removeprefix(STEP)
        wait = f"wait 1 {name}"
        if not self._is_ordered or key in values or wait not in values or self._calls[f"wait {name}"]:
            return
        if _decode_wait(values[wait]).after is not None:
            raise _mismatch(f"{_describe(wait)} was saved, and {_describe(key)} is now called")

    def resume(self, values: Mapping[str, bytes]) -> None:
        """Continue the numbers of the checkpoint that an earlier run saved, if there is one."""
        self._is_resumed = self._is_resumed or find_checkpoint(values) is not None
        if POSITION in values:
            position = _decode_position(values[POSITION])
            self._calls |= Counter(position.calls)
            self._taken |= Counter(position.taken)

    def place_checkpoint(self, value: bytes, values: Collection[str]) -> tuple[str, bytes]:
        """Return the name and the value to save of a checkpoint.

        Args:
            value: as JSON.
            values: names of the values that earlier runs saved.
        """
        if self._is_resumed:
            # The code begins at the last checkpoint: calls that were saved behind it do not come again.
            for key in values:
                if key.startswith((f"{_SLEEP} ", "wait ")):
                    kind, number, *name = key.split(" ")
                    self._calls |= Counter({" ".join((kind, *name)): int(number)})
        if not self._calls and POSITION not in values:
            return CHECKPOINT, value
        return POSITION, msgspec.json.encode(_Position(msgspec.Raw(value), self._calls, self._taken))

    def unused_signals(self, values: Collection[str]) -> set[str]:
        """Return the names of saved signals that no call has taken."""
        names = {name for _, _, name in parse_signals(values)}
        return {key for name in names for key in keys_of_signal(name, values)[self._taken[name] :]}

    def next_sleep(self, values: Mapping[str, bytes], *, name: str = "", is_own: bool = False) -> SleepCall:
        """Return the run's next call of `sleep` with this name, with what an earlier run saved of it.

        Raises:
            CallMismatch: it saved the call after another one.
        """
        kind = f"{_SLEEP} {name}".rstrip()
        self._calls[kind] += 1
        key = f"{_SLEEP} {self._calls[kind]} {name}".rstrip()
        saved = values.get(key)
        found = None if saved is None else _decode_sleep(saved)
        before = self._follow(key, None if found is None else found.after, is_own=is_own)
        return SleepCall(key, None, before) if found is None else SleepCall(key, found.until, found.after)

    def next_wait(self, name: str, values: Mapping[str, bytes], *, is_own: bool = False) -> WaitCall:
        """Return the run's next wait for this signal, with the value that it takes.

        Raises:
            CallMismatch: an earlier run saved the call after another one, or called a step of this name instead.
        """
        self._calls[f"wait {name}"] += 1
        call = f"{self._calls[f'wait {name}']} {name}"
        saved = values.get(f"wait {call}")
        found = None if saved is None else _decode_wait(saved)
        before = self._follow(f"wait {call}", None if found is None else found.after, is_own=is_own)
        has_timed_out = f"timeout {call}" in values
        value = None if has_timed_out else self._take(name, values)
        step = f"{STEP}{name}"
        is_new = found is None and value is None
        if self._is_ordered and is_new and step in values.keys() - self._steps and step in _known_orders(values):
            raise _mismatch(f"{_describe(step)} was saved, and {_describe(f'wait {call}')} is now called")
        until, after = (None, before) if found is None else (found.until, found.after)
        return WaitCall(f"wait {call}", f"timeout {call}", until, has_timed_out, value, after)

    def _follow(self, call: str, after: str | None, *, is_own: bool) -> str | None:
        """Note a call; return the name of the one before it, None if that is unknown.

        Args:
            after: the call before it in the run that saved it; None: unknown.
        """
        self._is_ordered = self._is_ordered and is_own
        before, self._last = self._last, call
        if not self._is_ordered:
            return None
        if after is not None and after != before:
            raise _mismatch(
                f"{_describe(call)} was saved after {_describe(after)}, and now comes after {_describe(before)}"
            )
        return before

    def _take(self, name: str, values: Mapping[str, bytes]) -> bytes | None:
        """Return the value of the first signal of that name which no wait has taken."""
        keys = keys_of_signal(name, values)
        if self._taken[name] == len(keys):
            return None
        self._taken[name] += 1
        return values[keys[self._taken[name] - 1]]


def decode_arguments(value: bytes) -> NewArguments:
    """Decode the value that `ARGUMENTS` names; a worker has encoded it."""
    return msgspec.json.decode(value, type=NewArguments)


def encode_sleep(until: int, after: str | None = None) -> bytes:
    """Return what a sleep saves.

    Args:
        after: name of the call before it; None: unknown.
    """
    return msgspec.json.encode(until if after is None else _SavedSleep(until, after))


def encode_wait(until: int, form: Mapping[str, Any], after: str | None = None) -> bytes:
    """Return what a wait saves.

    Args:
        form: JSON Schema of the signal; an empty one accepts anything.
        after: name of the call before it; None: unknown.
    """
    return msgspec.json.encode((until, form) if after is None else (until, form, after))


def find_checkpoint(values: Mapping[str, bytes]) -> bytes | None:
    """Return the last checkpoint as JSON; None if there is none."""
    return bytes(_decode_position(values[POSITION]).value) if POSITION in values else values.get(CHECKPOINT)


def decides_form(key: str, signal: JobSignal) -> bool:
    """Whether `find_form` needs the saved value of this name, not the name alone."""
    return key == POSITION or (key.startswith("wait ") and key.endswith(f" {signal.name}"))


def find_form(values: Mapping[str, bytes], signal: JobSignal) -> dict[str, Any] | None:
    """Return the form of the wait that takes a new signal; None: that wait has none, or no run has reached it."""
    known = parse_signals(values)
    if any(sender == signal.id for _, sender, _ in known):
        return None
    position = _decode_position(values[POSITION]) if POSITION in values else _START
    # Waits before the checkpoint are over, whether they took a signal, timed out, or were abandoned.
    last = position.calls.get(f"wait {signal.name}", 0)
    taken = sum(name == signal.name for _, _, name in known) - position.taken.get(signal.name, 0)
    ended = [key.split(" ")[1:] for key in values if key.startswith("timeout ")]
    timeouts = sum(name == signal.name and int(number) > last for number, name in ended)
    saved = values.get(f"wait {last + taken + timeouts + 1} {signal.name}")
    return None if saved is None else _decode_wait(saved).form or None


def describe_sleep(until: int) -> str:
    """Return the reason why a sleeping job waits, for people."""
    return f"asleep until {instant_text(until)}"


def describe_wait(name: str, until: int) -> str:
    """Return the reason why a job waits for a signal, for people."""
    end = "" if until == LAST_INSTANT else f" until {instant_text(until)}"
    return f"waiting for the signal {name!r}{end}"


def is_awaited(name: str, reason: str) -> bool:
    """Return whether a job that was suspended for this reason waits for the signal."""
    return reason.startswith(f"waiting for the signal {name!r}")


def _decode_sleep(saved: bytes) -> _SavedSleep:
    found = msgspec.json.decode(saved, type=int | _SavedSleep)
    return _SavedSleep(found) if isinstance(found, int) else found


def _decode_wait(saved: bytes) -> _SavedWait:
    return msgspec.json.decode(saved, type=_SavedWait)


def _decode_position(saved: bytes) -> _Position:
    return msgspec.json.decode(saved, type=_Position)


def _known_orders(values: Mapping[str, bytes]) -> set[str | None]:
    """Return the names of the calls after which others were saved."""
    sleeps = {_decode_sleep(value).after for key, value in values.items() if key.startswith(f"{_SLEEP} ")}
    return sleeps | {_decode_wait(value).after for key, value in values.items() if key.startswith("wait ")}


def _mismatch(difference: str) -> CallMismatch:
    return CallMismatch(f"its calls differ from those of an earlier run: {difference}")


def _describe(call: str) -> str:
    """Describe a call for people."""
    if call.startswith(STEP):
        return f"step {call.removeprefix(STEP)!r}"
    if call.startswith("wait "):
        _, number, name = call.split(" ")
        return f"wait {number} for {name!r}"
    return call or "the start"
