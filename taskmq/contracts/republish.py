"""Republishing of a message as a fresh copy: the one way to do so.

A copy carries the sender's headers as far as they can be written again. It never carries the broker's headers of the
original (`x-death` and its kin are tables and lists), and of taskmq's own headers only those that the caller names:
each copy records its own history.
"""

from collections.abc import Callable, Mapping

from taskmq.contracts.broker import Delivery, HeaderValue, Outgoing
from taskmq.model import headers as header
from taskmq.model.envelope import JSON, Envelope

_NO_HEADERS: Mapping[str, HeaderValue] = {}


def keeps_replays(name: str) -> bool:
    """Return whether one of taskmq's own headers stays with a job: only the number of its replays."""
    return name == header.REPLAYED


def copied_headers(headers: Mapping[str, object], *, keeps: Callable[[str], bool]) -> dict[str, HeaderValue]:
    """Return the headers that a copy carries.

    Args:
        keeps: returns whether the copy carries this header of taskmq's, too.
    """
    return {
        name: value
        for name, value in headers.items()
        if isinstance(value, str | int)
        and not isinstance(value, bool)
        and (not name.startswith(header.OWN) or keeps(name))
    }


def copy_message(
    original: Delivery,
    *,
    envelope: Envelope | None = None,
    job_id: str | None = None,
    body: bytes | None = None,
    queue: str | None = None,
    due: int | None = None,
    headers: Mapping[str, HeaderValue] = _NO_HEADERS,
    keeps: Callable[[str], bool] = keeps_replays,
    priority: int | None = None,
) -> Outgoing:
    """Return a copy of a delivery, to be published before the delivery is acknowledged.

    Args:
        envelope: the decoded message, if it could be decoded.
        job_id: the job's id, if it could be decoded.
        body: the new body.
        queue: the new physical queue.
        due: earliest delivery, ms.
        headers: additional headers.
        keeps: returns whether a header of taskmq's is kept.
        priority: see `Outgoing`.
    """
    return Outgoing(
        queue=queue or original.queue,
        body=original.body if body is None else body,
        # A body that was decoded without a content type is JSON.
        content_type=original.content_type or ("" if envelope is None else JSON),
        job_id=(original.message_id or "") if job_id is None else job_id,
        task=(original.task or "") if envelope is None else envelope.task,
        due=due,
        enqueued=None if envelope is None else envelope.enqueued,
        root=None if envelope is None else envelope.root,
        headers={
            **({} if envelope is None else header.labels_of(envelope.tenant, envelope.priority)),
            **copied_headers(original.headers, keeps=keeps),
            **headers,
        },
        priority=priority,
    )
