"""Filters as people write them. Pure.

    status:failed,dead task:billing.* error:TimeoutError created:>-24h attempt:>=3 label.team:ops key:"order 17"

Each part is a field, a colon and the values to match; a job must match all parts. Values with spaces, commas, quotes
or a final star are written in double quotes, where a backslash escapes a quote or a backslash.
"""

import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, get_args

from msgspec.structs import replace

from taskmq.errors import InvalidFilter, InvalidOption
from taskmq.model.jobs.filters import EVERYTHING, JobFilter, Retried, ViaChoice
from taskmq.model.runs.records import RunState
from taskmq.model.states import JobState
from taskmq.model.units import LAST_INSTANT, did_you_mean, parse_duration, to_ms

_WORDS: Final[dict[str, frozenset[JobState]]] = {
    **{str(state): frozenset({state}) for state in JobState if state is not JobState.UNKNOWN},
    # The words of other systems; where one of them is also one of ours, ours holds.
    "dead": frozenset({JobState.FAILED}),
    "canceled": frozenset({JobState.CANCELLED}),
    "claimed": frozenset({JobState.DISPATCHED}),
    "processing": frozenset({JobState.RUNNING}),
    "completed": frozenset({JobState.SUCCEEDED}),
    "pending": frozenset({JobState.WAITING, JobState.HELD, JobState.SCHEDULED, JobState.QUEUED, JobState.RETRYING}),
}
_LISTS: Final = {"task": "tasks", "queue": "queues", "key": "keys", "error": "errors", "id": "ids"}
_SPANS: Final = {"duration": "min_ran", "wait": "min_waited"}
_TIMES: Final = {"created": "submitted", "due": "due", "ended": "finished"}
_FIELDS: Final = (
    "status", "task", "queue", "tenant", "error", "duration", "wait", "attempt", "created", "due", "ended",
    "label.NAME", "key", "id", "retried", "via",
)  # fmt: skip
_RUN_FIELDS: Final = ("workflow", "status", "tenant", "started", "label.NAME", "parent")
_HELD: Final = "held"
RUN_STATES: Final = {**{str(state): state for state in RunState}, _HELD: RunState.RUNNING}
"""States of runs by the words of filters; a held run is `running`."""
_RETRIED: Final[tuple[Retried, ...]] = ("any", "no", "yes")
_OTHER_NAMES: Final = {"submitted": "created", "name": "task", "ran": "duration", "finished": "ended"}

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_NAME: Final = re.compile(r"-?[A-Za-z_]*")
_BARE: Final = re.compile(r'[^\s,"]+')
_LABEL: Final = re.compile(r'[^\s,":]+')
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\["\\])*)"')
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_COUNT: Final = re.compile(r"[0-9]{1,9}")


class _Value(NamedTuple):
    text: str
    column: int
    is_beginning: bool = False

    def refusal(self, message: str) -> InvalidFilter:
        return _error(self.column, message)


class _Part(NamedTuple):
    field: str
    label: str
    values: list[_Value]
    column: int
    now: int

    def refusal(self, message: str) -> InvalidFilter:
        return _error(self.column, message)


def parse_filter(text: str, now_ms: int) -> JobFilter:
    """Parse a filter; an empty text matches everything.

    Args:
        now_ms: base of relative times such as `-24h`, ms since the epoch.

    Raises:
        InvalidFilter: the text cannot be parsed; the message says where, and what is possible there.
    """
    fields = _collect(text, now_ms, _JOBS)
    return replace(EVERYTHING, **fields)


def parse_run_filter(text: str, now_ms: int) -> dict[str, Any]:
    """Parse a filter of runs; return the fields of `RunFilter` that it sets.

        workflow:nightly* status:failed started:>-24h tenant:acme label.team:ops parent:ID

    Args:
        now_ms: base of relative times, ms since the epoch.

    Raises:
        InvalidFilter: the text cannot be parsed; the message says where, and what is possible there.
    """
    fields = _collect(text, now_ms, _RUNS)
    return {**fields, "labels": dict(fields["labels"])} if "labels" in fields else fields


def select_run_states(words: Collection[str]) -> dict[str, Any]:
    """Return the fields of a `RunFilter` that select runs by these words of `RUN_STATES`."""
    states = tuple(dict.fromkeys(RUN_STATES[word] for word in words))
    return {"states": states, "is_held": _HELD in words and RunState.RUNNING not in words}


def _collect(text: str, now_ms: int, language: "_Language") -> dict[str, Any]:
    """Return the fields that all parts of a filter set."""
    found: dict[str, Any] = {}
    for part in _Reader(text, now_ms).parts():
        fields = _meaning(part, language)
        for name in fields:
            if name in found and name != "labels":
                raise part.refusal(f"{part.field} occurs twice: a {language.noun} must match both, so write it once")
        if "labels" in fields:
            fields["labels"] = found.get("labels", ()) + fields["labels"]
        found |= fields
    return found


def may_have_times(text: str) -> bool:
    """Return whether `parse_filter` may need the present time."""
    return "<" in text or ">" in text


class _Reader:
    """Splits a text into fields and values, without interpreting them."""

    def __init__(self, text: str, now: int) -> None:
        self._text = text
        self._now = now
        self._at = 0

    def parts(self) -> list[_Part]:
        found: list[_Part] = []
        while self._skip_spaces():
            found.append(self._part())
        return found

    def _skip_spaces(self) -> bool:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._at < len(self._text)

    def _part(self) -> _Part:
        start = self._at
        field = self._match(_NAME) or ""
        label = self._label() if field == "label" and self._take(".") else ""
        if not self._take(":"):
            word = self._text[start:].split(maxsplit=1)[0]
            raise _error(start, f"{word!r} has no field: write for example task:{word}")
        return _Part(field, label, self._values(field), start, self._now)

    def _label(self) -> str:
        start = self._at
        value = self._read_quoted()
        text = self._match(_LABEL) if value is None else value
        if not text:
            raise _error(start, "the label has no name: write for example label.team:ops")
        return text

    def _values(self, field: str) -> list[_Value]:
        values = [self._value(field)]
        while self._take(","):
            values.append(self._value(field))
        if self._at < len(self._text) and not self._text[self._at].isspace():
            raise _error(self._at, f"put a space or a comma after the value of {field}, or quotes around it")
        return values

    def _value(self, field: str) -> _Value:
        start = self._at
        if (quoted := self._read_quoted()) is not None:
            return _Value(quoted, start, is_beginning=self._take("*"))
        if (bare := self._match(_BARE)) is None:
            raise _error(start, f"{field}: has no value: write for example {_EXAMPLES.get(field, f'{field}:x')}")
        return _Value(bare.removesuffix("*"), start, is_beginning=bare.endswith("*"))

    def _read_quoted(self) -> str | None:
        if not self._text.startswith('"', self._at):
            return None
        start = self._at
        found = _QUOTED.match(self._text, start)
        if found is None:
            raise _error(start, 'the quote is not closed: put a " after the value, and \\ before a " or \\ in it')
        self._at = found.end()
        return _ESCAPED.sub(r"\1", found[1])

    def _match(self, form: re.Pattern[str]) -> str | None:
        if (found := form.match(self._text, self._at)) is None:
            return None
        self._at = found.end()
        return found[0]

    def _take(self, char: str) -> bool:
        is_there = self._text.startswith(char, self._at)
        self._at += is_there
        return is_there


def _meaning(part: _Part, language: "_Language") -> dict[str, Any]:
    """Return the fields of the filter that a part sets."""
    field, noun = part.field, language.noun
    if field.startswith("-"):
        raise part.refusal(f"{field}: excludes {noun}s, which is not possible: name the {noun}s to find")
    if (read := language.readers.get(field)) is None:
        known = language.other_names.get(field)
        hint = f"did you mean {known!r}?" if known else did_you_mean(field, language.fields)
        raise part.refusal(f"unknown field {field!r}: {hint}")
    return read(part)


def _read_status(part: _Part) -> dict[str, Any]:
    states: set[JobState] = set()
    for value in part.values:
        if value.is_beginning or (meant := _WORDS.get(value.text.lower())) is None:
            raise value.refusal(f"unknown status {value.text!r}: {did_you_mean(value.text, _WORDS)}")
        states |= meant
    return {"states": frozenset(states)}


def _read_run_status(part: _Part) -> dict[str, Any]:
    for value in part.values:
        if value.is_beginning or value.text not in RUN_STATES:
            raise value.refusal(f"unknown status {value.text!r}: {did_you_mean(value.text, RUN_STATES)}")
    return select_run_states([value.text for value in part.values])


def _read_workflow(part: _Part) -> dict[str, Any]:
    if len(part.values) > 1:
        raise part.values[1].refusal("workflow takes one name; a star stands for any text: workflow:nightly*")
    return {"workflow": part.values[0].text + "*" * part.values[0].is_beginning}


def _read_names(part: _Part) -> dict[str, Any]:
    for value in part.values:
        if value.is_beginning:
            return _read_beginning(part, value)
    return {_LISTS[part.field]: tuple(value.text for value in part.values)}


def _read_beginning(part: _Part, value: _Value) -> dict[str, Any]:
    if part.field != "task":
        raise value.refusal(f"{part.field} matches no prefixes, only task does: write the whole value")
    if not value.text or len(part.values) > 1:
        raise value.refusal("a filter has at most one prefix of a task, such as task:billing.*")
    return {"task_prefix": value.text}


def _read_text(part: _Part) -> dict[str, Any]:
    return {part.field: _only(part).text}


def _read_retried(part: _Part) -> dict[str, Any]:
    value = _only(part)
    if value.text not in _RETRIED:
        raise value.refusal(f"retried:{value.text} is not a choice: write {_EXAMPLES['retried']}, no or any")
    return {"retried": value.text}


def _read_via(part: _Part) -> dict[str, Any]:
    value = _only(part)
    if value.text not in get_args(ViaChoice):
        raise value.refusal(f"via:{value.text} is not a choice: write {_EXAMPLES['via']}, store or any")
    return {"via": value.text}


def _read_label(part: _Part) -> dict[str, Any]:
    if not part.label:
        raise part.refusal("the label has no name: write for example label.team:ops")
    return {"labels": ((part.label, _only(part).text),)}


def _read_attempt(part: _Part) -> dict[str, Any]:
    value, rest, least = _at_least(part)
    if _COUNT.fullmatch(rest) is None:
        raise value.refusal(f"{value.text!r} is not a number of attempts: write for example attempt:>=3")
    return {"min_attempt": int(rest) + least}


def _read_span(part: _Part) -> dict[str, Any]:
    value, rest, least = _at_least(part)
    try:
        return {_SPANS[part.field]: to_ms(parse_duration(rest)) + least}
    except InvalidOption:
        raise value.refusal(f"{rest!r} is not a duration: write for example {_EXAMPLES[part.field]}") from None


def _at_least(part: _Part) -> tuple[_Value, str, int]:
    """Return the value, the text after its sign, and 1 if a greater value is required."""
    value = _only(part)
    for sign, least in ((">=", 0), (">", 1)):
        if value.text.startswith(sign):
            return value, value.text.removeprefix(sign), least
    raise value.refusal(f"{part.field} takes a minimum only: write {_EXAMPLES[part.field]}")


def _read_time(part: _Part) -> dict[str, Any]:
    end, instant = _read_bound(part)
    return {f"{_TIMES[part.field]}_{end}": instant}


def _read_started(part: _Part) -> dict[str, Any]:
    end, instant = _read_bound(part)
    return {"since" if end == "from" else "until": instant}


def _read_bound(part: _Part) -> tuple[str, int]:
    """Return `from` or `before`, and the instant."""
    value = _only(part)
    for sign, end, later in ((">=", "from", 0), (">", "from", 1), ("<=", "before", 1), ("<", "before", 0)):
        if value.text.startswith(sign):
            return end, _instant(value, value.text.removeprefix(sign), part.now) + later
    raise value.refusal(f"{part.field} needs a > or < before the time: write {_EXAMPLES[part.field]}")


def _instant(value: _Value, text: str, now: int) -> int:
    if text == "now":
        return now
    if text[:1] in {"-", "+"}:
        try:
            span = to_ms(parse_duration(text[1:]))
        except InvalidOption:
            raise value.refusal(f"{text!r} is not a relative time: write for example -24h, +30m or -7d") from None
        instant = now - span if text[0] == "-" else now + span
        return min(max(instant, 0), LAST_INSTANT)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise value.refusal(f"{text!r} is not a time: write for example -24h or 2026-01-31T08:00:00Z") from None
    if when.tzinfo is None:
        raise value.refusal(f"{text!r} has no zone: put Z (UTC) or for example +01:00 after the time")
    return min(max((when - _EPOCH) // _MS, 0), LAST_INSTANT)


def _only(part: _Part) -> _Value:
    if len(part.values) > 1:
        raise part.values[1].refusal(f"{part.field} takes one value: put quotes around one with a comma")
    (value,) = part.values
    if value.is_beginning:
        raise value.refusal(f"{part.field} matches no prefixes: put quotes around a star")
    return value


def _error(index: int, message: str) -> InvalidFilter:
    return InvalidFilter(message, column=index + 1)


class _Language(NamedTuple):
    """The fields of one kind of filter."""

    noun: str
    fields: tuple[str, ...]
    other_names: Mapping[str, str]
    readers: Mapping[str, Callable[[_Part], dict[str, Any]]]


_READERS: Final[dict[str, Callable[[_Part], dict[str, Any]]]] = {
    # The API's name for it; `status` has the API's original words there.
    "state": _read_status,
    "status": _read_status,
    **dict.fromkeys(_LISTS, _read_names),
    "tenant": _read_text,
    "label": _read_label,
    "attempt": _read_attempt,
    "retried": _read_retried,
    "via": _read_via,
    **dict.fromkeys(_SPANS, _read_span),
    **dict.fromkeys(_TIMES, _read_time),
}
_EXAMPLES: Final = {
    "status": "status:failed",
    "attempt": "attempt:>=3",
    "duration": "duration:>5s",
    "wait": "wait:>30s",
    "created": "created:>-24h",
    "due": "due:<+1h",
    "ended": "ended:>-12h",
    "retried": "retried:yes",
    "via": "via:broker",
    "started": "started:>-24h",
    "workflow": "workflow:nightly*",
}
_JOBS: Final = _Language("job", _FIELDS, _OTHER_NAMES, _READERS)
_RUNS: Final = _Language(
    "run",
    _RUN_FIELDS,
    {"created": "started", "name": "workflow"},
    {
        "state": _read_run_status,
        "status": _read_run_status,
        "workflow": _read_workflow,
        "tenant": _read_text,
        "label": _read_label,
        "parent": _read_text,
        "started": _read_started,
    },
)
