"""Exit codes and the errors they stand for."""

from typing import Final

from taskmq.errors import (
    AccessDenied,
    AppNotFound,
    BrokerBlocked,
    BrokerUnavailable,
    DefinitionConflict,
    DefinitionNotFound,
    DuplicateTask,
    IdentityConflict,
    IdentityNotFound,
    InvalidArguments,
    InvalidOption,
    InvalidSetting,
    JobCancelled,
    JobConflict,
    JobNotFound,
    LimitReached,
    NotAuthenticated,
    NotPermitted,
    PartlyReplayed,
    PublishUnknown,
    QueueMissing,
    ReactionNotFound,
    RequestRefused,
    ResultTimeout,
    RunClosed,
    RunNotFound,
    SavedValuesFull,
    ServerUnavailable,
    StateUnavailable,
    StoreMismatch,
    StoreUnavailable,
    StoreWentBack,
    TaskFailed,
    TaskMQError,
    TopologyMismatch,
    UnknownTask,
    Unroutable,
    UnsupportedFeature,
    WorkflowNotFound,
)

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
DENIED: Final = 4
UNREACHABLE: Final = 5
CONFLICT: Final = 6
JOB_FAILED: Final = 7
MISMATCH: Final = 8
TIMEOUT: Final = 124
INTERRUPTED: Final = 130

_CODES: Final[tuple[tuple[type[TaskMQError], int], ...]] = (
    (ResultTimeout, TIMEOUT),
    (TaskFailed, JOB_FAILED),
    (JobCancelled, JOB_FAILED),
    (QueueMissing, NOT_FOUND),
    (ReactionNotFound, NOT_FOUND),
    (RunNotFound, NOT_FOUND),
    (WorkflowNotFound, NOT_FOUND),
    (UnknownTask, NOT_FOUND),
    (RunClosed, CONFLICT),
    (Unroutable, NOT_FOUND),
    (AccessDenied, DENIED),
    (NotAuthenticated, DENIED),
    (NotPermitted, DENIED),
    (IdentityNotFound, NOT_FOUND),
    (IdentityConflict, CONFLICT),
    (LimitReached, CONFLICT),
    (BrokerUnavailable, UNREACHABLE),
    (BrokerBlocked, UNREACHABLE),
    (PublishUnknown, UNREACHABLE),
    (StateUnavailable, UNREACHABLE),
    (StoreUnavailable, UNREACHABLE),
    (ServerUnavailable, UNREACHABLE),
    (JobNotFound, NOT_FOUND),
    (JobConflict, CONFLICT),
    (SavedValuesFull, CONFLICT),
    (DefinitionNotFound, NOT_FOUND),
    (DefinitionConflict, CONFLICT),
    (StoreMismatch, MISMATCH),
    (StoreWentBack, CONFLICT),
    (TopologyMismatch, CONFLICT),
    (AppNotFound, USAGE),
    (DuplicateTask, USAGE),
    (InvalidArguments, USAGE),
    (InvalidOption, USAGE),
    (InvalidSetting, USAGE),
    (UnsupportedFeature, USAGE),
)


# A status of a server that maps to none of our errors.
_STATUSES: Final = {404: NOT_FOUND, 409: CONFLICT, 410: NOT_FOUND, 412: CONFLICT, 413: USAGE, 422: USAGE}


def exit_code(error: TaskMQError) -> int:
    """Return the exit code for an error."""
    if isinstance(error, PartlyReplayed):
        return exit_code(error.failure)
    if isinstance(error, RequestRefused):
        return _STATUSES.get(error.status, FAILED)
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)
