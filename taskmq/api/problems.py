"""Problem details (RFC 9457), and which error of taskmq has which stable code."""

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
    FlowClosed,
    FlowFailed,
    FlowNotFound,
    IdentityConflict,
    IdentityNotFound,
    InvalidArguments,
    InvalidFilter,
    InvalidOption,
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
    RequestRefused,
    ResultDamaged,
    ResultExpired,
    ResultTimeout,
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
)

__all__ = ["MEDIA_TYPE", "PROBLEMS", "FieldProblem", "ProblemDetails", "details_of", "problem_of"]

MEDIA_TYPE: Final = "application/problem+json"
PROBLEMS: Final[tuple[tuple[type[TaskMQError], int, str, str], ...]] = (
    (DefinitionNotFound, 404, "definition_not_found", ""),
    (DefinitionConflict, 409, "definition_conflict", ""),
    (JobNotFound, 404, "job_not_found", ""),
    (ScheduleNotFound, 404, "schedule_not_found", ""),
    (QueueMissing, 404, "queue_not_found", ""),
    (Unroutable, 404, "queue_not_found", ""),
    (FlowNotFound, 404, "workflow_not_found", ""),
    (IdentityNotFound, 404, "identity_not_found", ""),
    (NotAuthenticated, 401, "not_signed_in", ""),
    (ConfirmationNeeded, 403, "confirmation_needed", ""),
    (NotPermitted, 403, "not_allowed", ""),
    (UnknownTask, 422, "unknown_task", ""),
    (InvalidArguments, 422, "invalid_arguments", ""),
    (EncodeError, 422, "invalid_arguments", ""),
    (InvalidFilter, 400, "invalid_filter", ""),
    (InvalidOption, 400, "invalid_option", ""),
    (TooLarge, 413, "too_large", ""),
    (IdentityConflict, 409, "identity_conflict", ""),
    (LimitReached, 409, "limit_reached", ""),
    (JobConflict, 409, "job_conflict", ""),
    (DuplicateJob, 409, "duplicate_job", ""),
    (QuotaExceeded, 429, "quota_exceeded", ""),
    (FlowClosed, 409, "workflow_closed", ""),
    (FlowFailed, 409, "workflow_failed", ""),
    (TaskFailed, 409, "job_failed", ""),
    (JobCancelled, 409, "job_cancelled", ""),
    (ResultTimeout, 409, "job_not_ended", ""),
    (ResultExpired, 410, "result_expired", ""),
    (ResultDamaged, 410, "result_damaged", "the result is not what was stored"),
    (UnsupportedFeature, 501, "unsupported", ""),
    (AccessDenied, 503, "broker_denied", "the broker refuses this server's user"),
    (BrokerUnavailable, 503, "broker_unavailable", "the broker could not be reached; nothing was sent"),
    (BrokerBlocked, 503, "broker_blocked", "the broker takes no messages for now; nothing was sent"),
    (PublishRejected, 503, "publish_rejected", "the broker refused the message; nothing was sent"),
    (PublishUnknown, 503, "publish_unknown", "it is not known whether the broker has taken the message"),
    (StateUnavailable, 503, "state_unavailable", "the state could not be reached"),
    (StoreUnavailable, 503, "store_unavailable", "the job store could not be reached"),
    (StoreWentBack, 503, "store_went_back", "the job store has forgotten what it had confirmed"),
    (StoreMismatch, 503, "store_mismatch", "the job store's tables are of another version than this server's"),
    (StoreRefused, 500, "store_refused", "the job store cannot keep what was asked for; nothing was changed"),
    (TopologyMismatch, 409, "topology_mismatch", ""),
)
"""Each error with its status, its code, and, for those that no caller can mend, the text instead of the message."""

_TITLES: Final = {
    400: "The request cannot be read",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "The method is not allowed here",
    406: "Not acceptable",
    409: "In conflict with what is there",
    410: "Gone",
    412: "It has changed meanwhile",
    413: "Too large",
    415: "Unsupported media type",
    422: "It cannot be done so",
    428: "A precondition is required",
    429: "Too many requests",
    500: "An error of the server",
    501: "Not available here",
    503: "Not available for now",
}


class FieldProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong with one field of a request.

    Attributes:
        field: its path, such as `priority` or `3.job_type`.
        suggestion: what may be meant, or can stand there.
    """

    field: str
    message: str
    suggestion: str = ""


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error, as `application/problem+json`.

    Attributes:
        code: stable; programs go by it.
        detail: for people: what happened, to which name, and what to do.
        request_id: to be named in a request for help.
        errors: about single fields.
        state, version: of the job, where it is in conflict.
        column: where a filter cannot be read, from 1.
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
    """An error of taskmq as the API reports it; one that no caller can mend comes without its message."""
    if isinstance(error, PartlyReplayed):
        found = problem_of(error.failure, request_id)
        return msgspec.structs.replace(
            found, detail=f"{error.replayed} were replayed, {error.failed} were not: {found.detail}"
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
                said = f"{said}; {'nothing was changed' if error.is_certain else 'it may have been changed'}"  # noqa: PLW2901 - only here it is more than a constant
            return details_of(status, code, said or str(error), request_id=request_id, **facts)
    return details_of(500, "internal", "an error of the server; its log has more", request_id=request_id)


def details_of(status: int, code: str, detail: str, *, request_id: str, **facts: Any) -> ProblemDetails:
    """The details of a problem, with the title of its status."""
    return ProblemDetails(
        type=f"urn:taskmq:problem:{code}",
        title=_TITLES.get(status, "An error"),
        status=status,
        code=code,
        detail=detail,
        request_id=request_id,
        **facts,
    )
