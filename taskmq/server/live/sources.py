"""Sources of external events and their authentication: an HMAC of time, id and body.

    Taskmq-Signature: t=SECONDS,n=ID,v1=HEX      HEX = HMAC-SHA256(secret, "SECONDS.ID.BODY")

An event whose time differs by more than five minutes is rejected. The sender chooses an `ID` for each event. A
request that repeats it, from the sender or an eavesdropper, starts no second job.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from taskmq.errors import InvalidSetting, NotAuthenticated
from taskmq.model.identity import EVERYWHERE, Identity, Membership, Permission, Role
from taskmq.model.keys import split_tenant_key

_WINDOW: Final = 300
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SIGNATURE: Final = re.compile(r"t=(?P<at>[0-9]{1,12}),n=(?P<id>[A-Za-z0-9._:-]{1,128}),v1=(?P<digest>[0-9a-f]{64})")
_LEAST_SECRET: Final = 16
# Makes an unknown source take as long as a wrong signature.
_NO_SECRET: Final = "0" * _LEAST_SECRET


class EventSource(msgspec.Struct, frozen=True, kw_only=True):
    """A source of external events and the task they start.

    Attributes:
        name: a to z, digits, dots, dashes; the value of `?source=`.
        task: the name of a task, or of a definition of the tenant, called with `event=`.
        tenant: the tenant of the jobs; "" for none.
        secrets: the accepted secrets; two during a rotation.

    Raises:
        InvalidSetting: a value is invalid.
    """

    name: str
    task: str
    tenant: str = ""
    secrets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise InvalidSetting(f"event source {self.name!r}: use 1 to 64 characters of a-z 0-9 . _ -")
        if not self.task:
            raise InvalidSetting(f"event source {self.name!r}: the task is missing; use NAME=TASK")
        if any(len(secret) < _LEAST_SECRET for secret in self.secrets):
            raise InvalidSetting(f"event source {self.name!r}: a secret needs at least {_LEAST_SECRET} characters")

    def __repr__(self) -> str:
        return f"EventSource(name={self.name!r}, task={self.task!r}, tenant={self.tenant!r})"


class EventSignature(NamedTuple):
    """A parsed signature header.

    Attributes:
        at: the signing time, in seconds.
        id: the event's id.
    """

    at: int
    id: str
    digest: str

    @classmethod
    def read(cls, text: str) -> "EventSignature | None":
        """Parse the header; returns None if it is malformed."""
        found = _SIGNATURE.fullmatch(text.strip())
        return None if found is None else cls(int(found["at"]), found["id"], found["digest"])


def read_sources(texts: Iterable[str], secrets: str) -> tuple[EventSource, ...]:
    """Read event sources from the command line.

    Args:
        texts: NAME=TASK or NAME=@TENANT:TASK.
        secrets: NAME=SECRET, separated by spaces; a source may have several.

    Raises:
        InvalidSetting: a source is malformed, repeated or has no secret; or a secret has no source.
    """
    known: dict[str, list[str]] = {}
    for pair in secrets.split():
        name, _, secret = pair.partition("=")
        known.setdefault(name, []).append(secret)
    found: dict[str, EventSource] = {}
    for text in texts:
        name, _, place = text.partition("=")
        tenant, task = split_tenant_key(place)
        if name in found:
            raise InvalidSetting(f"event source {name!r} is given twice")
        if name not in known:
            raise InvalidSetting(f"event source {name!r} has no secret: TASKMQ_EVENT_SECRETS='{name}=SECRET ...'")
        found[name] = EventSource(name=name, task=task, tenant=tenant, secrets=tuple(known[name]))
    if unknown := sorted(set(known) - set(found)):
        raise InvalidSetting(f"TASKMQ_EVENT_SECRETS: unknown event source {unknown[0]!r}; add it with --event-source")
    return tuple(found.values())


def sign(secret: str, body: bytes, *, event_id: str, at: int) -> str:
    """Build the signature header of an event; `at` in seconds."""
    return f"t={at},n={event_id},v1={_digest(secret, body, event_id, at)}"


def signed_identity(source: EventSource | None, header: str, body: bytes, *, now: float) -> Identity:
    """Return the identity of an event's source, which may only send events.

    Args:
        source: the named source; None if it is unknown.
        now: the current time, in seconds.

    Raises:
        NotAuthenticated: the signature is invalid or too old; the message does not say which.
    """
    signature = EventSignature.read(header)
    secrets: Sequence[str] = (source.secrets if source is not None else ()) or (_NO_SECRET,)
    is_good = False
    if signature is not None:
        for secret in secrets:
            digest = _digest(secret, body, signature.id, signature.at)
            is_good |= hmac.compare_digest(digest, signature.digest)
    if signature is None or source is None or not source.secrets or not is_good or abs(now - signature.at) > _WINDOW:
        raise NotAuthenticated("the event's signature is invalid, or its time is not current")
    name = f"event:{source.name}"
    return Identity(
        user_id=name,
        user=name,
        memberships=(Membership(source.tenant or EVERYWHERE, Role.SUBMITTER),),
        via="event",
        credential=name,
        scopes=frozenset({Permission.EVENTS_SEND}),
    )


def _digest(secret: str, body: bytes, event_id: str, at: int) -> str:
    return hmac.new(secret.encode(), b"%d.%s.%s" % (at, event_id.encode(), body), hashlib.sha256).hexdigest()
