"""Claims of stored jobs: a job with claims runs only while it holds all of them.

    dispatched -> take_claims -- held ----> published, with a fence
                              -- closed --> behind the gate of the claim, until open_claims finds a free place
                              -- done ----> ends with the result of the job that did the work

A claim is held by a dispatch, which a job and its token identify. So whatever ends the dispatch (an end, a retry, an
interruption, a cancel, an erasure) frees its claims in its own transaction, without a statement for them.

A suspension frees all claims but the idempotency key, and so does a run that is held because its calls differ. The
job holds its key until it ends, or until any other report returns it to the store. Its next dispatch takes the key
again, under a later fence.

A line is a claim that only the first of its live jobs gets. The submission gives a job its place, and the job keeps
it until it ends. A job that is resumed, or moved to another queue, gets the last place.
"""

from collections.abc import Mapping

import msgspec


class JobClaim(msgspec.Struct, frozen=True, omit_defaults=True):
    """A claim of one job, which follows from its task and the keys in its message.

    Attributes:
        name: the key with its scope; the job waits behind the gate of this name. `line_key` names a line.
        places: how many jobs may hold the claim at a time.
        ttl: of an idempotency key: ms for which a success answers later jobs; None for other claims.
    """

    name: str
    places: int = 1
    ttl: int | None = None


class WorkDone(msgspec.Struct, frozen=True):
    """The result of the job that did the work of an idempotency key."""

    job_id: str
    content_type: str
    result: bytes


class TakenClaims(msgspec.Struct, frozen=True):
    """The answer to a dispatch of jobs with claims.

    A job in no attribute is not dispatched with its token any more, or its cancellation was requested.

    Attributes:
        fences: jobs that hold their claims; the fence grows with each call that grants an idempotency key, also to
            the same dispatch, and is 0 for a job without one.
        waiting: jobs that were moved behind a gate, and the claim's name.
        done: jobs whose work was done before.
    """

    fences: Mapping[str, int] = {}
    waiting: Mapping[str, str] = {}
    done: Mapping[str, WorkDone] = {}
