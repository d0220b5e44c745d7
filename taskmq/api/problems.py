"""Problem details (RFC 9457), with a stable code for each error of taskmq."""

from typing import Any, Final

import msgspec

from taskmq.errors import (
    AccessDenied,
    BrokerBlocked,
    BrokerUnavailable,
    ConfirmationNeeded,
    DefinitionConflict,
    DefinitionNotFound,
    DuplicateJob,
    EncodeError,
    IdentityConflict,
    IdentityNotFound,
    InvalidArguments,
    InvalidFilter,
    InvalidOption,
    InvalidWorkflow,
    JobCancelled,
    JobConflict,
    JobNotFound,
    LimitReached,
    NotAuthenticated,
    NotPermitted,
    PartlyReplayed,
    PublishRejected,
    PublishUnknown,
    QueueMissing,
    QuotaExceeded,
    ReactionNotFound,
    RequestRefused,
    ResultDamaged,
    ResultExpired,
    ResultTimeout,
    RunClosed,
    RunFailed,
    RunNotFound,
    SavedValuesFull,
    ScheduleNotFound,
    StateUnavailable,
    StoreMismatch,
    StoreRefused,
    StoreUnavailable,
    StoreWentBack,
    TaskFailed,
    TaskMQError,
    TooLarge,
    TopologyMismatch,
    UnknownTask,
    Unroutable,
    UnsupportedFeature,
    WorkflowNotFound,
)

MEDIA_TYPE: Final = "application/problem+json"
UNCERTAIN: Final = "the change may have been applied"
"""The end of the detail if it is unknown whether a change was applied; clients look for it."""
PROBLEMS: Final[tuple[tuple[type[TaskMQError], int, str, str], ...]] = (
    (DefinitionNotFound, 404, "definition_not_found", ""),
    (DefinitionConflict, 409, "definition_conflict", ""),
    (JobNotFound, 404, "job_not_found", ""),
    (ScheduleNotFound, 404, "schedule_not_found", ""),
    (ReactionNotFound, 404, "reaction_not_found", ""),
    (QueueMissing, 404, "queue_not_found", ""),
    (Unroutable, 404, "queue_not_found", ""),
    (RunNotFound, 404, "run_not_found", ""),
    (WorkflowNotFound, 404, "workflow_not_found", ""),
    (IdentityNotFound, 404, "identity_not_found", ""),
    (NotAuthenticated, 401, "not_signed_in", ""),
    (ConfirmationNeeded, 403, "confirmation_needed", ""),
    (NotPermitted, 403, "not_allowed", ""),
    (UnknownTask, 422, "unknown_task", ""),
    (InvalidArguments, 422, "invalid_arguments", ""),
    (EncodeError, 422, "invalid_arguments", ""),
    (InvalidFilter, 400, "invalid_filter", ""),
    (InvalidWorkflow, 422, "invalid_workflow", ""),
    (InvalidOption, 400, "invalid_option", ""),
    (TooLarge, 413, "too_large", ""),
    (IdentityConflict, 409, "identity_conflict", ""),
    (LimitReached, 409, "limit_reached", ""),
    (JobConflict, 409, "job_conflict", ""),
    (SavedValuesFull, 409, "saved_values_full", ""),
    (DuplicateJob, 409, "duplicate_job", ""),
    (QuotaExceeded, 429, "quota_exceeded", ""),
    (RunClosed, 409, "run_closed", ""),
    (RunFailed, 409, "run_failed", ""),
    (TaskFailed, 409, "job_failed", ""),
    (JobCancelled, 409, "job_cancelled", ""),
    (ResultTimeout, 409, "job_not_ended", ""),
    (ResultExpired, 410, "result_expired", ""),
    (ResultDamaged, 410, "result_damaged", "the stored result is damaged"),
    (UnsupportedFeature, 501, "unsupported", ""),
    (AccessDenied, 503, "broker_denied", "the broker denies access to this server's user"),
    (BrokerUnavailable, 503, "broker_unavailable", "the broker is unreachable; nothing was sent"),
    (BrokerBlocked, 503, "broker_blocked", "the broker blocks publishing at the moment; nothing was sent"),
    (PublishRejected, 503, "publish_rejected", "the broker rejected the message; nothing was sent"),
    (PublishUnknown, 503, "publish_unknown", "the broker did not confirm the message; it may have been sent"),
    (StateUnavailable, 503, "state_unavailable", "the state is unreachable"),
    (StoreUnavailable, 503, "store_unavailable", "the job store is unreachable"),
    (StoreWentBack, 503, "store_went_back", "the job store lost confirmed data"),
    (StoreMismatch, 503, "store_mismatch", "the job store's schema version does not match this server"),
    (StoreRefused, 500, "store_refused", "the job store rejected the request; nothing was changed"),
    (TopologyMismatch, 409, "topology_mismatch", ""),
)
"""The status and code of each error. A text replaces the messages of errors that no caller can fix."""

_TITLES: Final = {
    400: "Invalid request",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    409: "Conflict",
    410: "Gone",
    412: "Precondition failed",
    413: "Too large",
    415: "Unsupported media type",
    422: "Unprocessable request",
    428: "Precondition required",
    429: "Too many requests",
    500: "Internal server error",
    501: "Not supported",
    503: "Temporarily unavailable",
}


class FieldProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An invalid field of a request.

    Attributes:
        field: the field's path, such as `priority` or `3.job_type`.
        suggestion: a similar or an allowed value.
    """

    field: str
    message: str
    suggestion: str = ""


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error, as `application/problem+json`.

    Attributes:
        code: a stable code for programs.
        detail: a message for people: what happened, to which name, and what to do.
        request_id: the request's id, to quote to the server's operator.
        errors: the invalid fields.
        state, version: the job's current state and version, after a conflict.
        column: the column of a syntax error in a filter, counted from 1.
    """

    type: str
    title: str
    status: int
    code: str
    detail: str = ""
    request_id: str = ""
    errors: list[FieldProblem] = []
    state: str = ""
    version: int = 0
    column: int = 0


def problem_of(error: TaskMQError, request_id: str = "") -> ProblemDetails:
    """Build the problem details of an error. The message of an error that no caller can fix is not included."""
    if isinstance(error, PartlyReplayed):
        found = problem_of(error.failure, request_id)
        return msgspec.structs.replace(
            found, detail=f"{error.replayed} letters were replayed, {error.failed} were not: {found.detail}"
        )
    if isinstance(error, RequestRefused):
        return details_of(error.status, error.code, str(error), request_id=request_id)
    for kind, status, code, said in PROBLEMS:
        if isinstance(error, kind):
            facts: dict[str, Any] = {}
            if isinstance(error, JobConflict):
                facts = {"state": error.state, "version": error.version}
            if isinstance(error, DefinitionConflict):
                facts = {"version": error.version}
            if isinstance(error, InvalidFilter):
                facts = {"column": error.column}
            if isinstance(error, StateUnavailable | StoreUnavailable):
                said = f"{said}; {'nothing was changed' if error.is_certain else UNCERTAIN}"  # noqa: PLW2901 - only here it is more than a constant
            return details_of(status, code, said or str(error), request_id=request_id, **facts)
    return details_of(500, "internal", "internal server error; see the server's log", request_id=request_id)


def details_of(status: int, code: str, detail: str, *, request_id: str, **facts: Any) -> ProblemDetails:
    """Build problem details with the title of the status."""
    return ProblemDetails(
        type=f"urn:taskmq:problem:{code}",
        title=_TITLES.get(status, "Error"),
        status=status,
        code=code,
        detail=detail,
        request_id=request_id,
        **facts,
    )
