"""Conditions of a query, put together with their values."""

from taskmq_sql.steps import places

__all__ = ["Conditions", "contains"]


class Conditions:
    """What has to hold, all of it."""

    def __init__(self) -> None:
        self.args: list[object] = []
        self._parts: list[str] = []

    def demand(self, condition: str, *values: object) -> None:
        """Add a condition, which has `{}` for its values."""
        self._parts.append(condition.format(places(len(values), begin=len(self.args) + 1)))
        self.args.extend(values)

    def equal(self, column: str, value: object | None) -> None:
        """Demand that a column has a value, where there is one."""
        if value is not None:
            self.demand(f"{column} = {{}}", value)

    def place(self, value: object) -> str:
        """The place of one more value."""
        self.args.append(value)
        return f"${len(self.args)}"

    @property
    def where(self) -> str:
        """The WHERE clause of all of them."""
        return f"where {' and '.join(self._parts)}" if self._parts else ""


def contains(text: str) -> str:
    """A pattern of `like ... escape '!'` that finds the text anywhere, its ASCII letters in lower case."""
    lowered = "".join(letter.lower() if letter.isascii() else letter for letter in text)
    for special in "!%_":
        lowered = lowered.replace(special, f"!{special}")
    return f"%{lowered}%"
