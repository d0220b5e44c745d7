"""Data lost on the wire, and apparent losses."""

import math
import threading
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from pydantic import BaseModel, PrivateAttr, RootModel, SecretStr

from taskmq.model.values.difference import difference


class Color(Enum):
    RED = "red"


class Tone(Enum):
    RED = "red"
    LOUD = Decimal(1)


@dataclass
class Base:
    a: int = 0
    share: float | None = None


@dataclass
class Derived(Base):
    more: int = 0


@dataclass(eq=False)
class Silent:
    a: int = 0
    path: Path = Path("a")


class Size(NamedTuple):
    width: int
    height: float


class Cat(msgspec.Struct, tag=True, omit_defaults=True):
    lives: int = 9


class Row(msgspec.Struct, array_like=True):
    name: str
    share: float | None = None


class Person(BaseModel):
    name: str
    share: float | None = None
    _lock: Any = PrivateAttr(default_factory=threading.Lock)
    _note: Any = PrivateAttr(default=0)


class Opaque:
    pass


def _person(note: Any = 0, **fields: Any) -> Person:
    person = Person(name="Ada", **fields)
    person._note = note
    return person


_NAN = math.nan
_PARIS = ZoneInfo("Europe/Paris")
_ODD = timezone(timedelta(hours=1, seconds=7))
_TWICE = datetime(2026, 10, 25, 2, 30, tzinfo=_PARIS, fold=1)
_DAY = date(2026, 1, 1)


@pytest.mark.parametrize(
    ("sent", "arrived"),
    [
        (1, 1.0),
        (_NAN, float("nan")),
        ([_NAN, {"a": _NAN}], [float("nan"), {"a": float("nan")}]),
        (_TWICE, _TWICE.astimezone(UTC)),
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"),
        (time(1, 2), "01:02:00"),
        (Color.RED, "red"),
        ("red", Color.RED),
        ("2026-01-01", _DAY),
        (_DAY, "2026-01-01"),
        (UUID(int=7), str(UUID(int=7))),
        (Path("a"), "a"),
        (1.5, Decimal("1.5")),
        (Decimal("NaN"), Decimal("NaN")),
        (Decimal("sNaN"), Decimal("sNaN")),
        (Tone.LOUD, "1"),
        (Color.RED, Tone.RED),
        ((1, 2), [1, 2]),
        ({UUID(int=2), UUID(int=1)}, [str(UUID(int=1)), str(UUID(int=2))]),
        ([1, 2], frozenset({1, 2})),
        ({UUID(int=7): 1}, {str(UUID(int=7)): 1}),
        ({"a": 1}, Base(1)),
        ({"type": "Cat", "lives": 3}, Cat(3)),
        ({"name": 7, "other": 1}, _person()),
        (["a"], Row("a")),
        (Row("a"), ["a", None]),
        (Base(1), {"a": 1, "share": None}),
        (Cat(), {"type": "Cat"}),
        (Cat(3), {"type": "Cat", "lives": 3}),
        (Silent(1), Silent(1)),
        (_person(), _person()),
        (_person(share=_NAN), _person(share=float("nan"))),
        (_person(), {"name": "Ada", "share": None}),
        (Size(1, _NAN), Size(1, float("nan"))),
        (RootModel[list[int]]([1, 2]), [1, 2]),
        (memoryview(b"a"), b"a"),
    ],
)
def test_equivalent_spellings_lose_nothing(sent: object, arrived: object) -> None:
    assert difference(sent, arrived) is None


@pytest.mark.parametrize(
    ("sent", "arrived", "words"),
    [
        (_NAN, None, "JSON has no NaN and no infinity"),
        (math.inf, _NAN, "JSON has no NaN and no infinity"),
        (
            {"a": [Base(share=-math.inf)]},
            {"a": [{"a": 0, "share": None}]},
            r"no infinity.* - at `\[...\]\[0\].share`",
        ),
        (datetime(1890, 1, 1, tzinfo=_ODD), datetime(1890, 1, 1, tzinfo=timezone(timedelta(hours=1))), "astimezone"),
        (datetime(1890, 1, 1, tzinfo=_ODD), "1890-01-01T00:00:00+01:00", "its UTC offset has seconds"),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1), "another value"),  # noqa: DTZ001
        (time(1, tzinfo=_ODD), time(1, tzinfo=timezone(timedelta(hours=1))), "use one of whole minutes"),
        ({"a": 1, "zzz": 2}, {"a": 1}, "its type has no 'zzz', which would be left out"),
        ({"a": 1, "zzz": 2}, Base(1), "Base has no 'zzz', which would be left out"),
        ({"a": 1}, Base(2), "another value.* - at `a`"),
        ({1: 2, "1": 3}, {"1": 3}, "JSON has no keys but texts: annotate the type of the keys"),
        ({1: 2, 3: 4}, {"1": 2, "3": 4}, "JSON has no keys but texts"),
        ({"a": 1}, {"b": 1}, r"another value.* - at `\[...\]`"),
        ([1, 1], {1}, "of its 2 items 1 would arrive"),
        ([1, 2], [1, 3], r"another value.* - at `\[1\]`"),
        ({Opaque}, {int}, r"another value.* - at `\[0\]`"),
        (Derived(1), Base(1), "it would arrive as a Base: annotate Derived"),
        (Silent(1), Silent(2), "another value.* - at `a`"),
        (_person("x"), _person(), "private attributes do not travel - at `_note`"),
        (_person(threading.Lock()), _person(), "private attributes do not travel - at `_note`"),
        (_person(share=1.5), _person(), "- at `share`"),
        (_person(share=_NAN), {"name": "Ada", "share": None}, "JSON has no NaN.* - at `.*`"),
        (SecretStr("hunter2"), SecretStr("**********"), "another value"),
        (Opaque(), Opaque(), "another value"),
        (b"a", "a", "another value"),
        ("a", None, "another value"),
        (1, 2, "another value"),
    ],
)
def test_lost_data_is_reported_with_its_location_and_without_its_value(
    sent: object, arrived: object, words: str
) -> None:
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(difference(sent, arrived))
