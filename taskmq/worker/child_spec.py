"""What the supervisor and a worker process say to each other at its beginning and at its end.

The supervisor imports this and not the worker, whose modules would be a third of its memory and half of its start.
"""

import logging
from typing import Final

import msgspec

from taskmq.worker.config import WorkerConfig

__all__ = ["EXIT_DISMISSED", "EXIT_USAGE", "ChildSpec"]

EXIT_USAGE: Final = 2
# Far from what tasks end a process with.
EXIT_DISMISSED: Final = 213
"""A command over the broker has drained this process: it is not to be replaced."""


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor wants.

    Attributes:
        looks: whether this child asks the broker how many messages wait; one of them is enough.
    """

    target: str
    config: WorkerConfig
    url: str | None = None
    state: str | None = None
    log_level: int = logging.INFO
    looks: bool = False
