"""A feature, and the servers that it needs."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from taskmq import TaskMQ

PATIENCE: Final = 90.0


@dataclass(frozen=True)
class Feature:
    """A feature of taskmq.

    Attributes:
        check: fails unless the feature works, or is refused by name; it may write to the folder.
        is_shared: of a stored job: whether an app with a state shares it with sent jobs, so the state decides.
    """

    name: str
    check: Callable[[TaskMQ, Path], Awaitable[None]]
    is_shared: bool = False
