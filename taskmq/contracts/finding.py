"""What an examination has found: by `taskmq doctor`, and by programs."""

from typing import Literal, NamedTuple

__all__ = ["Finding", "Level"]

Level = Literal["ok", "warning", "problem"]


class Finding(NamedTuple):
    """One thing that was looked at.

    Attributes:
        level: `problem` where jobs are lost, late or refused; `warning` where they may be.
        about: a queue, a node, or a part of the installation.
        finding: what was found, in words.
        remedy: what to do; empty where nothing has to be done.
    """

    level: Level
    about: str
    finding: str
    remedy: str = ""
