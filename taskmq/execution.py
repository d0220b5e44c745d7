"""One run of a task's function: what middleware sees and executors carry out."""

from collections.abc import Callable
from typing import Any

import msgspec

from taskmq.context import Context
from taskmq.envelope import Envelope
from taskmq.resources import Grant

__all__ = ["Execution"]


class Execution(msgspec.Struct):
    """One run. Middleware may replace `args` and `kwargs`, except for tasks that run in other processes.

    Attributes:
        function: the task's function.
        args, kwargs: its arguments, decoded and complete, the context included.
        envelope: the message as it came; what travels to another process.
        content_type: the encoding of the envelope's arguments.
        timeout: seconds; None for no limit.
        soft_timeout: seconds after which `SoftTimeout` is raised inside; None for none.
        carry: texts that middleware wants to have where the function runs, should that be another process; there
            they reach `Middleware.attach`.
        grant: what the run was given of the worker's resources; None when the task needs none.
    """

    context: Context
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    envelope: Envelope
    content_type: str
    timeout: float | None
    grant: Grant | None = None
    soft_timeout: float | None = None
    carry: dict[str, str] | None = None
