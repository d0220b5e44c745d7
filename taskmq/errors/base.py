"""Root of all errors, and errors of options, settings and registration."""

from typing import Any

from taskmq.control_flow import rebuild


class TaskMQError(Exception):
    """Base of all errors of taskmq."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By arguments and facts, since the constructor's parameters differ from `args`.
        return rebuild, (type(self), self.args, self.__dict__)


class InvalidOption(TaskMQError):
    """Raised when an option of a task, a call or the app is misspelled or has an invalid value."""


class InvalidFilter(InvalidOption):
    """Raised when a filter of jobs cannot be parsed.

    Attributes:
        column: position of the error in the text, from 1.
    """

    def __init__(self, message: str, *, column: int) -> None:
        super().__init__(f"column {column}: {message}")
        self.column = column


class InvalidWorkflow(InvalidOption):
    """Raised when a workflow has faults, which the message lists line by line; nothing was stored."""


class ScheduleNotFound(InvalidOption):
    """Raised when no schedule has this name, or none of this tenant."""


class ReactionNotFound(InvalidOption):
    """Raised when no reaction has this name, or a tenant is selected."""


class InvalidSetting(TaskMQError):
    """Raised when a setting in the environment, a file or on the command line is unknown or invalid."""


class DuplicateTask(TaskMQError):
    """Raised when two functions are registered under one task name."""


class UnsupportedFeature(TaskMQError):
    """Raised when a feature needs something that the app does not configure or the broker lacks."""


class AppNotFound(TaskMQError):
    """Raised when the target of a command is not an importable module with an app."""
