"""Audit entries, and the chain of hashes that shows whether one was changed or taken away.

An entry's digest is made of what stays (when, which action, on what, by which ids) and of two commitments, each the
hash of a random salt and of a part that may be about a person: who (name, address) and what (before, after, note). To
erase a person's data is to forget the salt and the part: the commitment stays, and with it the chain.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

__all__ = [
    "GENESIS",
    "AuditEntry",
    "AuditRecord",
    "ChainLink",
    "broken_link",
    "entry_digest",
    "link",
    "recorded",
    "sealed",
]

GENESIS: Final = bytes(32)
"""The link before the first entry of the chain."""
_NO_BYTES: Final = b""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that an administrator or an operator has done, as it is handed to a store.

    Attributes:
        action: a noun and a verb, such as `user.add`.
        kind, subject: what it was done to: `user` and its id, `queue` and its name.
        tenant: whose; "" where it belongs to the instance.
        user_id, user: who; `user_id` is "" for the command line, whose `user` is the system's.
        via: by which kind of credential: `session`, `token`, `host`, `cli`.
        credential: its id.
        address: from where.
        request_id: of the request.
        before, after: what was changed, without secrets.
        note: why.
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
        number: the store's own; entries of one moment may get theirs in any order.
        at: ms since the epoch.
        who, what: JSON of the parts that may be about a person; None where they were erased.
        who_salt, what_salt: random; None where they were erased.
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
        """What was handed to the store, without what was erased."""
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
        """Whether a part of it was erased."""
        return self.who is None or self.what is None


class ChainLink(msgspec.Struct, frozen=True):
    """The last entry that was sealed: its place in the chain, from 1, and its hash; 0 and `GENESIS` where none is."""

    position: int = 0
    hash: bytes = GENESIS


def recorded(entry: AuditEntry, *, number: int, at: int, who_salt: bytes, what_salt: bytes) -> AuditRecord:
    """The entry as a store keeps it; the salts are 16 random bytes each."""
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
        who_commitment=_committed(who_salt, who),
        what=what,
        what_salt=what_salt,
        what_commitment=_committed(what_salt, what),
    )


def entry_digest(record: AuditRecord) -> bytes:
    """The hash of what stays of an entry, whatever was erased."""
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
    """The hash of an entry in the chain, behind `previous`."""
    return hashlib.sha256(previous + entry_digest(record)).digest()


def sealed(head: ChainLink, records: Sequence[AuditRecord]) -> list[ChainLink]:
    """The links of entries that follow `head`, in their order."""
    links: list[ChainLink] = []
    for record in records:
        head = ChainLink(head.position + 1, link(head.hash, record))
        links.append(head)
    return links


def broken_link(head: ChainLink, records: Sequence[AuditRecord]) -> str:
    """What is wrong with the entries that follow `head` in the chain, the first of it; "" where nothing is."""
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
            if part is not None and _committed(salt or _NO_BYTES, part) != commitment:
                return f"position {head.position} (entry {record.number}): {name!r} was changed"
    return ""


def _committed(salt: bytes, part: bytes) -> bytes:
    return hashlib.sha256(salt + part).digest()
