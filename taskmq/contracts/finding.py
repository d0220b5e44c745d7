"""Findings of an examination, by `taskmq doctor` and by programs."""

from typing import Literal, NamedTuple

Level = Literal["ok", "warning", "problem"]


class Finding(NamedTuple):
    """A finding of an examination.

    Attributes:
        level: `problem` if jobs are lost, late or refused; `warning` if they may be.
        about: a queue, a node, or a part of the installation.
        finding: the fact, in words.
        remedy: what to do; empty if nothing has to be done.
    """

    level: Level
    about: str
    finding: str
    remedy: str = ""
