"""The one way in which a message is published again: as a fresh copy.

A copy carries the sender's headers as far as they can be written again. What the broker has written on the original
(`x-death` and kin are tables and lists) it never carries, and of taskmq's own headers only those that the caller
names: each copy says for itself what happened on the way.
"""

from collections.abc import Callable, Mapping

from taskmq.contracts.broker import Delivery, HeaderValue, Outgoing
from taskmq.model import headers as header
from taskmq.model.envelope import JSON, Envelope

__all__ = ["copied_headers", "copy_message", "keeps_replays"]

_NO_HEADERS: Mapping[str, HeaderValue] = {}


def keeps_replays(name: str) -> bool:
    """Of taskmq's own headers, the one that stays with a job: how often it was replayed."""
    return name == header.REPLAYED


def copied_headers(headers: Mapping[str, object], *, keeps: Callable[[str], bool]) -> dict[str, HeaderValue]:
    """What a copy carries of a message's headers.

    Args:
        keeps: whether it carries taskmq's own header of this name, too.
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
    """A copy of a delivery, to be published before the delivery is acknowledged.

    Args:
        envelope: what the message says, where it was understood.
        job_id: the job's id, where it was understood.
        body: what to say instead.
        queue: the physical queue to go to instead.
        due: not to be delivered before, ms.
        headers: what else to write on it.
        keeps: which of taskmq's own headers it carries over.
        priority: see `Outgoing`.
    """
    return Outgoing(
        queue=queue or original.queue,
        body=original.body if body is None else body,
        # A body that was understood without a content type is JSON.
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
