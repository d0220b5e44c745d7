"""Where events from outside come from, and how each of them proves it: HMAC over time, number and body.

    Taskmq-Signature: t=SECONDS,n=ID,v1=HEX      HEX = HMAC-SHA256(secret, "SECONDS.ID.BODY")

An event whose time is more than five minutes away from now is refused. The sender chooses `ID` for each event: a
request that repeats it, from the sender or from an eavesdropper, starts no second job.
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

__all__ = ["EventSignature", "EventSource", "read_sources", "sign", "signed_identity"]

_WINDOW: Final = 300
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SIGNATURE: Final = re.compile(r"t=(?P<at>[0-9]{1,12}),n=(?P<id>[A-Za-z0-9._:-]{1,128}),v1=(?P<digest>[0-9a-f]{64})")
_LEAST_SECRET: Final = 16
# So that an unknown source takes as long as a wrong signature.
_NO_SECRET: Final = "0" * _LEAST_SECRET


class EventSource(msgspec.Struct, frozen=True, kw_only=True):
    """A sender of events, and what each of them starts.

    Attributes:
        name: a to z, digits, dots, dashes; what `?source=` says.
        task: the name of a task, or of a definition of the tenant, which is called with `event=`.
        tenant: whose the jobs are; "" without one.
        secrets: any of them signs; two while one takes the other's place.

    Raises:
        InvalidSetting: a value that cannot be.
    """

    name: str
    task: str
    tenant: str = ""
    secrets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise InvalidSetting(f"event source {self.name!r}: 1 to 64 characters out of a-z 0-9 . _ -")
        if not self.task:
            raise InvalidSetting(f"event source {self.name!r}: which task do its events start? NAME=TASK")
        if any(len(secret) < _LEAST_SECRET for secret in self.secrets):
            raise InvalidSetting(f"event source {self.name!r}: a secret has at least {_LEAST_SECRET} characters")

    def __repr__(self) -> str:
        return f"EventSource(name={self.name!r}, task={self.task!r}, tenant={self.tenant!r})"


class EventSignature(NamedTuple):
    """What a header says.

    Attributes:
        at: when it was signed, in seconds.
        id: the event's.
    """

    at: int
    id: str
    digest: str

    @classmethod
    def read(cls, text: str) -> "EventSignature | None":
        """The signature; None where it is none."""
        found = _SIGNATURE.fullmatch(text.strip())
        return None if found is None else cls(int(found["at"]), found["id"], found["digest"])


def read_sources(texts: Iterable[str], secrets: str) -> tuple[EventSource, ...]:
    """Sources as the command line has them.

    Args:
        texts: NAME=TASK each, or NAME=@TENANT:TASK.
        secrets: NAME=SECRET with spaces between; one source may have several.

    Raises:
        InvalidSetting: one cannot be read, has no secret, or comes twice; or a secret is of no source.
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
            raise InvalidSetting(f"event source {name!r} is there twice")
        if name not in known:
            raise InvalidSetting(f"event source {name!r} has no secret: TASKMQ_EVENT_SECRETS='{name}=SECRET ...'")
        found[name] = EventSource(name=name, task=task, tenant=tenant, secrets=tuple(known[name]))
    if unknown := sorted(set(known) - set(found)):
        raise InvalidSetting(f"TASKMQ_EVENT_SECRETS: there is no event source {unknown[0]!r}; --event-source adds it")
    return tuple(found.values())


def sign(secret: str, body: bytes, *, event_id: str, at: int) -> str:
    """What a sender puts into the header; `at` in seconds."""
    return f"t={at},n={event_id},v1={_digest(secret, body, event_id, at)}"


def signed_identity(source: EventSource | None, header: str, body: bytes, *, now: float) -> Identity:
    """Return the identity of the source that sent an event, which may do nothing else.

    Args:
        source: that it says it comes from; None: there is none of that name.
        now: seconds.

    Raises:
        NotAuthenticated: the signature is not good, or too old; the message never says which.
    """
    signature = EventSignature.read(header)
    secrets: Sequence[str] = (source.secrets if source is not None else ()) or (_NO_SECRET,)
    is_good = False
    if signature is not None:
        for secret in secrets:
            digest = _digest(secret, body, signature.id, signature.at)
            is_good |= hmac.compare_digest(digest, signature.digest)
    if signature is None or source is None or not source.secrets or not is_good or abs(now - signature.at) > _WINDOW:
        raise NotAuthenticated("the event is not signed as one of a known source, or its time is not now")
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
