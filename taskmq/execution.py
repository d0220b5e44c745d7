"""One run of a task's function: what middleware sees and executors carry out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from taskmq.context import Context
from taskmq.envelope import Envelope

__all__ = ["Execution"]


@dataclass(slots=True)
class Execution:
    """One run. Middleware may replace `args` and `kwargs`, except for tasks that run in other processes.

    Attributes:
        function: the task's function.
        args, kwargs: its arguments, decoded and complete, the context included.
        envelope: the message as it came; what travels to another process.
        content_type: the encoding of the envelope's arguments.
        timeout: seconds; None for no limit.
    """

    context: Context
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    envelope: Envelope
    content_type: str
    timeout: float | None
