"""Signals among the saved values of a job: the value of each is saved as `signal NUMBER ID NAME`. Pure."""

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.history.journals import LARGEST_SAVED

MOST_SAVED: Final = 1000
"""Maximum number of saved values of a job, signals included."""


_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,100}", re.ASCII)


class JobSignal(msgspec.Struct, frozen=True):
    """A value that a sender gives to a job.

    Attributes:
        name: the name that a call of the task waits for.
        id: of this signal: a second one with the same id has no effect.
        value: as JSON.
    """

    name: str
    id: str
    value: bytes


class SignalEffect(NamedTuple):
    """The effect of a signal on a job's saved values.

    Attributes:
        key: name of its value, or of the first signal with its id; "": the job has no room for it.
        is_new: whether the value has to be stored.
    """

    key: str
    is_new: bool

    @property
    def name(self) -> str:
        """Name of the stored signal."""
        return self.key.rpartition(" ")[2]


def check_signal(text: str, *, what: str) -> str:
    """Return the name or the id of a signal, or the name of a sleep.

    Raises:
        InvalidOption: it has other characters than letters, digits, `_`, `.`, `:` and `-`, or too many.
    """
    if _NAME.fullmatch(text) is None:
        raise InvalidOption(f"{what}={text[:120]!r}: use 1 to 100 letters, digits, '_', '.', ':' and '-'")
    return text


def place_signal(sizes: Mapping[str, int], signal: JobSignal) -> SignalEffect:
    """Decide the effect of a signal.

    Args:
        sizes: bytes of the job's saved values by name, without those that are kept elsewhere.
    """
    known = [(number, sender, key) for key in sizes for number, sender, _ in parse_signals([key])]
    if first := next((key for _, sender, key in known if sender == signal.id), None):
        return SignalEffect(first, False)
    key = f"signal {max((number for number, *_ in known), default=0) + 1} {signal.id} {signal.name}"
    total = sum(len(name) + size for name, size in sizes.items()) + len(key) + len(signal.value)
    has_room = len(sizes) < MOST_SAVED and total <= LARGEST_SAVED
    return SignalEffect(key if has_room else "", has_room)


def count_signals(keys: Collection[str]) -> int:
    """Return the number of signals among the names of saved values."""
    return len(parse_signals(keys))


def parse_signals(keys: Collection[str]) -> list[tuple[int, str, str]]:
    """Return number, id and name of the signals among these keys."""
    parts = [key.split(" ") for key in keys if key.startswith("signal ")]
    return [(int(number), sender, name) for _, number, sender, name in parts]


def keys_of_signal(name: str, keys: Collection[str]) -> list[str]:
    """Return the keys of the signals of this name, in the order in which they came."""
    found = [(number, key) for key in keys for number, _, its in parse_signals([key]) if its == name]
    return [key for _, key in sorted(found)]
