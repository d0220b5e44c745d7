"""Calls of a task that wait outside of the worker: their job is suspended, and runs again later."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, cast

import msgspec

from taskmq.control_flow import Suspension
from taskmq.errors import EncodeError, InvalidOption, SignalTimeout
from taskmq.model.envelope import JSON
from taskmq.model.history.signals import check_signal
from taskmq.model.history.suspensions import (
    ARGUMENTS,
    CONTINUED,
    NewArguments,
    SleepCall,
    WaitCall,
    describe_sleep,
    describe_wait,
    encode_sleep,
    encode_wait,
)
from taskmq.model.jobs.call_schemas import schema_of
from taskmq.model.units import LAST_INSTANT, Duration, parse_duration, to_datetime, to_ms
from taskmq.model.values.return_type import PLAIN, ReturnType
from taskmq.run.journal import RunJournal, check_size

NO_DEFAULT: Final = object()
"""Default of a wait that raises when it times out."""


class Sleep:
    """A call of `sleep` in one run.

    Args:
        duration: from the first run of the call on.
        until: instead of a duration.
        name: "": it has none.

    Raises:
        InvalidOption: neither or both are given, one is invalid, or a name is missing.
    """

    def __init__(self, journal: RunJournal, duration: Duration | None, until: datetime | None, name: str) -> None:
        if (duration is None) is (until is None):
            raise InvalidOption("sleep() takes either a duration or until=")
        if name:
            check_signal(name, what="name")
        elif not journal.is_own_flow():
            raise InvalidOption(
                f"job {journal.job_id}: sleep() in another asyncio task or thread of the run needs a name, because "
                "their order may differ in the next run: pass name=, a different one in each"
            )
        self._journal = journal
        instant = _end_of(journal, duration, what="sleep") if duration is not None else _instant_of(until)
        self._until: int = min(max(instant, 0), LAST_INSTANT)
        self._name = name
        self.key: str = ""

    def find_unsaved(self, values: Mapping[str, bytes]) -> bytes | None:
        """Return the value to save under `key`, before `end` is called; None if an earlier run saved it."""
        is_own = self._journal.is_ordered_flow()
        call: SleepCall = self._journal.waits.next_sleep(values, name=self._name, is_own=is_own)
        self.key = call.key
        if call.until is None:
            return encode_sleep(self._until, call.after)
        self._until = call.until
        return None

    def end(self) -> None:
        """Return if the time is over.

        Raises:
            Suspension: it is not; the job runs again then.
        """
        left = self._until - self._journal.now_ms()
        if left > 0:
            raise Suspension(describe_sleep(self._until), self._until, timedelta(milliseconds=left))


class SignalWait:
    """A call of `wait_for` in one run.

    Args:
        form: type of the value.
        timeout: from the first run of the call on; None: it never times out.
        default: value at the timeout; `NO_DEFAULT`: it raises.

    Raises:
        InvalidOption: the name or the timeout is invalid, or another asyncio task or thread waits for the signal.
    """

    def __init__(self, journal: RunJournal, name: str, form: Any, timeout: Duration | None, default: object) -> None:
        self._journal = journal
        self._name = check_signal(name, what="signal")
        journal.claim_signal(name)
        self._form = form
        self._type = ReturnType(form)
        self._default = default
        self._until: int = LAST_INSTANT if timeout is None else _end_of(journal, timeout, what="timeout")
        self._call: WaitCall | None = None
        self.key: str = ""

    def find_unsaved(self, values: Mapping[str, bytes]) -> bytes | None:
        """Return the value to save under `key`, before `end` is called; None if there is none."""
        self._call = call = self._journal.waits.next_wait(self._name, values, is_own=self._journal.is_ordered_flow())
        if call.value is not None or call.has_timed_out:
            return None
        if call.until is not None:
            self._until = call.until
            if self._until <= self._journal.now_ms():
                self.key = call.timeout_key
                return b"true"
        # A deploy may have changed the form.
        wait = encode_wait(self._until, schema_of(self._form), call.after)
        if values.get(call.key) == wait:
            return None
        self.key = call.key
        return wait

    def end(self) -> Any:
        """Return the signal's value, or the default.

        Raises:
            Suspension: there is no signal yet; the job runs again when it comes, or at the timeout.
            SignalTimeout: it timed out, and there is no default.
            EncodeError: the value does not fit the type.
        """
        call = self._call
        assert call is not None
        if call.value is not None:
            try:
                return self._type.decode(call.value, JSON)
            except EncodeError as error:
                raise EncodeError(
                    f"job {self._journal.job_id}: the value of the signal {self._name!r} does not fit its type: "
                    f"{error.__cause__}"
                ) from error
        if not call.has_timed_out and self.key != call.timeout_key:
            # At the timeout, the next run saves that it is over.
            left = max(self._until - self._journal.now_ms(), 0)
            raise Suspension(describe_wait(self._name, self._until), self._until, timedelta(milliseconds=left))
        if self._default is NO_DEFAULT:
            raise SignalTimeout(self._journal.job_id, self._name)
        return self._default


def replace_arguments(
    journal: RunJournal, values: Mapping[str, bytes], args: tuple[object, ...], kwargs: dict[str, object]
) -> bytes:
    """Return the value of `ARGUMENTS`, which deletes all other values but the signals that were not taken.

    Raises:
        EncodeError: an argument has no form in JSON.
        TooLarge: they have more than 256 KiB.
    """
    names = {*values, *journal.saved}
    drops = sorted(names - journal.waits.unused_signals(names))
    encoded = [msgspec.Raw(PLAIN.encode(each, JSON)) for each in (list(args), kwargs)]
    check_size(ARGUMENTS, b"".join(map(bytes, encoded)))
    return msgspec.json.encode(NewArguments(encoded[0], encoded[1], drops))


def continue_now(journal: RunJournal) -> Suspension:
    """Return the suspension of a job that runs again at once."""
    return Suspension(CONTINUED, journal.now_ms(), timedelta(0))


def _end_of(journal: RunJournal, duration: Duration, *, what: str) -> int:
    return min(journal.now_ms() + to_ms(parse_duration(duration, what=what)), LAST_INSTANT - 1)


def _instant_of(until: datetime | None) -> int:
    if not isinstance(cast("object", until), datetime) or until is None or until.tzinfo is None:
        raise InvalidOption(f"sleep(until={until!r}): use a datetime with a time zone")
    return to_ms(until - to_datetime(0))
