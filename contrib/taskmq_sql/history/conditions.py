"""SQL conditions built with their values."""

from taskmq_sql.steps import placeholders


class Conditions:
    """Conditions of one query, joined by AND."""

    def __init__(self) -> None:
        self.args: list[object] = []
        self._parts: list[str] = []

    def demand(self, condition: str, *values: object) -> None:
        """Add a condition, with `{}` in place of its values."""
        self._parts.append(condition.format(placeholders(len(values), begin=len(self.args) + 1)))
        self.args.extend(values)

    def equal(self, column: str, value: object | None) -> None:
        """Require `column = value`, unless the value is None."""
        if value is not None:
            self.demand(f"{column} = {{}}", value)

    def add_value(self, value: object) -> str:
        """Add a value and return its placeholder."""
        self.args.append(value)
        return f"${len(self.args)}"

    @property
    def where(self) -> str:
        """The WHERE clause; "" if there are no conditions."""
        return f"where {' and '.join(self._parts)}" if self._parts else ""


def contains(text: str) -> str:
    """Return a `like ... escape '!'` pattern that finds the text anywhere, its ASCII letters in lower case."""
    lowered = "".join(letter.lower() if letter.isascii() else letter for letter in text)
    for special in "!%_":
        lowered = lowered.replace(special, f"!{special}")
    return f"%{lowered}%"
