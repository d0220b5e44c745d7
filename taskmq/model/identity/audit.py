"""Audit entries, and the hash chain that shows whether one was changed or removed.

An entry's digest covers its permanent fields (time, action, subject, ids) and two commitments. Each commitment is the
hash of a random salt and of a part that may concern a person: who (name, address) and what (before, after, note).
Erasing a person's data deletes the salt and the part; the commitment stays, and with it the chain.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

GENESIS: Final = bytes(32)
"""Hash that precedes the first entry of the chain."""
_NO_BYTES: Final = b""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An action of an administrator or an operator, as it is passed to a store.

    Attributes:
        action: a noun and a verb, such as `user.add`.
        kind, subject: the object of the action: `user` and its id, `queue` and its name.
        tenant: of the object; "": it belongs to the instance.
        user_id, user: the actor; `user_id` is "" for the command line, whose `user` is the system's.
        via: the kind of credential: `session`, `token`, `host`, `cli`.
        credential: its id.
        address: the address of the client.
        request_id: of the request.
        before, after: the values before and after, without secrets.
        note: the reason.
    """

    action: str
    kind: str = ""
    subject: str = ""
    tenant: str = ""
    user_id: str = ""
    user: str = ""
    via: str = "cli"
    credential: str = ""
    address: str = ""
    request_id: str = ""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    note: str = ""


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An entry as a store keeps it.

    Attributes:
        number: assigned by the store; concurrent entries may get theirs in any order.
        at: ms since the epoch.
        who, what: JSON of the parts that may concern a person; None once erased.
        who_salt, what_salt: random; None once erased.
        who_commitment, what_commitment: hashes of salt and part.
        position, hash: in the chain; None until it is sealed.
    """

    number: int
    at: int
    action: str
    kind: str
    subject: str
    tenant: str
    user_id: str
    via: str
    credential: str
    request_id: str
    who: bytes | None
    who_salt: bytes | None
    who_commitment: bytes
    what: bytes | None
    what_salt: bytes | None
    what_commitment: bytes
    position: int | None = None
    hash: bytes | None = None

    def entry(self) -> AuditEntry:
        """Return the entry that was passed to the store, without erased parts."""
        who: dict[str, Any] = {} if self.who is None else msgspec.json.decode(self.who)
        what: dict[str, Any] = {} if self.what is None else msgspec.json.decode(self.what)
        return AuditEntry(
            action=self.action,
            kind=self.kind,
            subject=self.subject,
            tenant=self.tenant,
            user_id=self.user_id,
            via=self.via,
            credential=self.credential,
            request_id=self.request_id,
            **who,
            **what,
        )

    @property
    def is_erased(self) -> bool:
        """Whether a part of the entry was erased."""
        return self.who is None or self.what is None


class ChainLink(msgspec.Struct, frozen=True):
    """Position, from 1, and hash of the last sealed entry; 0 and `GENESIS` if there is none."""

    position: int = 0
    hash: bytes = GENESIS


def to_record(entry: AuditEntry, *, number: int, at: int, who_salt: bytes, what_salt: bytes) -> AuditRecord:
    """Return the entry as a store keeps it; each salt is 16 random bytes."""
    who = msgspec.json.encode({"user": entry.user, "address": entry.address})
    what = msgspec.json.encode({"before": entry.before, "after": entry.after, "note": entry.note})
    return AuditRecord(
        number=number,
        at=at,
        action=entry.action,
        kind=entry.kind,
        subject=entry.subject,
        tenant=entry.tenant,
        user_id=entry.user_id,
        via=entry.via,
        credential=entry.credential,
        request_id=entry.request_id,
        who=who,
        who_salt=who_salt,
        who_commitment=_commitment(who_salt, who),
        what=what,
        what_salt=what_salt,
        what_commitment=_commitment(what_salt, what),
    )


def entry_digest(record: AuditRecord) -> bytes:
    """Return the hash of an entry's permanent fields, which erasing leaves unchanged."""
    kept = [
        record.number,
        record.at,
        record.action,
        record.kind,
        record.subject,
        record.tenant,
        record.user_id,
        record.via,
        record.credential,
        record.request_id,
        record.who_commitment.hex(),
        record.what_commitment.hex(),
    ]
    return hashlib.sha256(msgspec.json.encode(kept)).digest()


def link(previous: bytes, record: AuditRecord) -> bytes:
    """Return the hash of an entry that follows `previous` in the chain."""
    return hashlib.sha256(previous + entry_digest(record)).digest()


def seal_records(head: ChainLink, records: Sequence[AuditRecord]) -> list[ChainLink]:
    """Return the chain links of entries that follow `head`, in their order."""
    links: list[ChainLink] = []
    for record in records:
        head = ChainLink(head.position + 1, link(head.hash, record))
        links.append(head)
    return links


def broken_link(head: ChainLink, records: Sequence[AuditRecord]) -> str:
    """Return the first fault among entries that follow `head` in the chain; "" if there is none."""
    for record in records:
        head = ChainLink(head.position + 1, link(head.hash, record))
        if record.position != head.position:
            return f"position {head.position} is missing: the next entry has {record.position}"
        if record.hash != head.hash:
            return f"position {head.position} (entry {record.number}) is not what was sealed, or one before it is not"
        for name, salt, part, commitment in (
            ("who", record.who_salt, record.who, record.who_commitment),
            ("what", record.what_salt, record.what, record.what_commitment),
        ):
            if part is not None and _commitment(salt or _NO_BYTES, part) != commitment:
                return f"position {head.position} (entry {record.number}): {name!r} was changed"
    return ""


def _commitment(salt: bytes, part: bytes) -> bytes:
    return hashlib.sha256(salt + part).digest()
