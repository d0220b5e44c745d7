"""Expressions: conditions of a reaction, joined by `all_of`, `any_of` and `at_least`. Pure."""

import hashlib
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from taskmq.errors import InvalidOption
from taskmq.reactions.model.conditions import Condition, TimeComes
from taskmq.schedules.triggers import Trigger

_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


class AllOf(msgspec.Struct, frozen=True):
    """An expression that needs all of its parts."""

    parts: "tuple[Expression, ...]"

    def describe(self) -> str:
        return " and ".join(_describe_part(part) for part in self.parts)


class AnyOf(msgspec.Struct, frozen=True):
    """An expression that needs one of its parts."""

    parts: "tuple[Expression, ...]"

    def describe(self) -> str:
        return " or ".join(_describe_part(part) for part in self.parts)


class AtLeast(msgspec.Struct, frozen=True):
    """An expression that needs some of its parts."""

    count: int
    parts: "tuple[Expression, ...]"

    def describe(self) -> str:
        return f"at least {self.count} of: {'; '.join(_describe_part(part) for part in self.parts)}"


Joined = AllOf | AnyOf | AtLeast
"""Expressions of several parts."""
Expression = Condition | AllOf | AnyOf | AtLeast
Part = Expression | Trigger
"""Argument of `all_of`, `any_of` and `at_least`; a trigger of `taskmq.schedules.triggers` means that it is due."""


def all_of(*parts: Part) -> AllOf:
    """Build the expression that all parts have occurred since the last call, in any order.

    Raises:
        InvalidOption: there are fewer than two parts, or a part is no condition, expression or trigger.
    """
    return AllOf(_parse_parts(parts, "all_of"))


def any_of(*parts: Part) -> AnyOf:
    """Build the expression that one of the parts has occurred.

    Raises:
        InvalidOption: see `all_of`.
    """
    return AnyOf(_parse_parts(parts, "any_of"))


def at_least(count: int, *parts: Part) -> AtLeast:
    """Build the expression that `count` of the parts have occurred since the last call, in any order.

    Raises:
        InvalidOption: the count is not between 1 and the number of parts, or see `all_of`.
    """
    found = _parse_parts(parts, "at_least")
    if not 1 <= count <= len(found):
        raise InvalidOption(f"at_least({count}, ...): give a count of 1 to {len(found)}, the number of conditions")
    return AtLeast(count, found)


def conditions_of(expression: Expression) -> tuple[Condition, ...]:
    """Return the conditions from left to right; their indexes are their numbers."""
    return tuple(_walk(expression))


def is_met(expression: Expression, met_numbers: AbstractSet[int]) -> bool:
    """Whether the conditions with these numbers satisfy the expression."""
    return _is_met(expression, met_numbers, iter(range(len(conditions_of(expression)))))


def rule_of(expression: Expression, debounce: int, limit: int = 0) -> str:
    """Return a digest of an expression that is equal for equal expressions, in every process."""
    facts = _ADDRESS.sub("", f"{expression!r} {debounce}" + (f" {limit}" if limit else ""))
    return hashlib.sha256(facts.encode()).hexdigest()[:12]


def _is_met(expression: Expression, met_numbers: AbstractSet[int], numbers: Iterator[int]) -> bool:
    if not isinstance(expression, Joined):
        return next(numbers) in met_numbers
    # Evaluate every part, because each one consumes its numbers.
    met = [_is_met(part, met_numbers, numbers) for part in expression.parts]
    if isinstance(expression, AllOf):
        return all(met)
    return sum(met) >= (expression.count if isinstance(expression, AtLeast) else 1)


def _walk(expression: Expression) -> Iterator[Condition]:
    if isinstance(expression, Joined):
        for part in expression.parts:
            yield from _walk(part)
    else:
        yield expression


def _parse_parts(parts: tuple[Part, ...], what: str) -> tuple[Expression, ...]:
    if len(parts) < 2:
        raise InvalidOption(f"{what}() needs at least two conditions")
    found: list[Expression] = []
    for part in parts:
        if isinstance(part, Expression):
            found.append(part)
        elif callable(getattr(part, "next_after", None)):
            found.append(TimeComes(part))
        else:
            raise InvalidOption(
                f"{what}(): {part!r} is not a condition: use job(), run(), file(), message(), amqp() or a trigger "
                "of taskmq.schedules.triggers"
            )
    return tuple(found)


def _describe_part(part: Expression) -> str:
    return f"({part.describe()})" if isinstance(part, Joined) else part.describe()
