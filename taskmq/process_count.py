"""How many processes a worker has, as people write it."""

from taskmq.errors import InvalidOption

__all__ = ["parse_processes"]


def parse_processes(text: str) -> tuple[int, int | None]:
    """The least and the most number in `text`, such as `4` or `1-8`; the most is None for a plain number.

    Raises:
        InvalidOption: it is neither, or less than 1, or the wrong way round.
    """
    least, dash, most = text.strip().partition("-")
    if least.isdecimal() and (most.isdecimal() if dash else True):
        low, high = int(least), int(most) if dash else None
        if low >= 1 and (high is None or high >= low):
            return low, high
    raise InvalidOption(f"processes={text!r}: a number from 1 on, or such as '1-8'")
