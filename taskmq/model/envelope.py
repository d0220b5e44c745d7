"""The wire form of one call of one task: version 1, 2 if the arguments are stored elsewhere, 3 if parts of them are.

The body of a message is one object in UTF-8 JSON (`application/json`) or MessagePack (`application/msgpack`). An
absent field has its default. Fields that this version does not know are kept when a message is republished (`amend`)
and otherwise ignored. Arguments stay encoded (`Raw`) until the task's own signature decodes them, so routing a
message never touches them.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec

from taskmq.errors import EncodeError, InvalidOption, MalformedMessage
from taskmq.model.retry import RunOptions
from taskmq.model.units import InstantMs

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"
VERSION: Final = 1
REFERRING: Final = 2
"""Version of a message that refers to its arguments. A reader that cannot fetch them must not run it without them."""
IN_PARTS: Final = 3
"""Version of a message that refers to parts of its arguments, for the same reason."""

_TASK_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.:-]{1,128}")
_NO_ARGS = msgspec.Raw(b"[]")
NO_KWARGS: Final = msgspec.Raw(b"{}")
"""Encoded keyword arguments of a message that has none; omitted on the wire, in either content type."""
# Attempts have 32 bits.
_LAST_ATTEMPT = 2**31 - 1
# Only six bits of a job id's third random byte are used, after the variant's two.
_VARIANT: Final = tuple(f"{0x80 | bits:02x}" for bits in range(0x40))


Token = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
"""Token of one dispatch of a stored job; every language represents numbers up to this limit exactly."""


# The form that `topology.reports_queue` produces, short enough for a queue's name (255 bytes) in any script.
_REPORTS: Final = re.compile(r"taskmq\.reports\.(?:[\x20-\x7e]{1,240}|[^\x00-\x1f\x7f]{1,60})")


class Invitation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Fields that only the message of a stored job has: `store` in its body.

    Attributes:
        id: the store's id of the job; the id that people see may be one that its submitter chose.
        token: of this dispatch.
        reports: the queue for reports; a message that names any other queue is malformed.
        proof: proves that the store issued this token; every report repeats it. Empty: from a scheduler older than
        proofs.
        outages: number of outages that interrupted runs of this attempt.
        crashes: how many workers died while they had this dispatch; None: its message never came back. If it did, the
            worker reports `started` before the run.
        not_before, not_after: first and last instant of its start under a strict rate, ms since the epoch by the
            store's clock; None: it may start at any time.
        due: the instant at which the job was due, ms since the epoch; None once an earlier run of it started.
        saves: version of the values that earlier runs saved.
        saved: these values as JSON, by name; None: there are none.
        kept: references to those that are kept elsewhere; None: there are none.
        fence: the job holds its idempotency key and the limits that the store decides: the fencing token of its key,
            or 0 without a key; None: it has neither.
        leaves_limits: whether the job holds its key only: its scheduler has a state, which decides limits, or knows
            no concurrency limit of the task.
    """

    id: str
    token: Token
    reports: str
    proof: str = ""
    outages: Annotated[int, msgspec.Meta(ge=0)] = 0
    crashes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    due: InstantMs | None = None
    not_before: InstantMs | None = None
    not_after: InstantMs | None = None
    saves: Annotated[int, msgspec.Meta(ge=0)] = 0
    saved: dict[str, msgspec.Raw] | None = None
    kept: dict[str, msgspec.Raw] | None = None
    fence: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)] | None = None
    leaves_limits: bool = False


class BlobReference(msgspec.Struct, frozen=True, kw_only=True):
    """The location of a value, and its checksum.

    Attributes:
        name: in the store.
        size: bytes.
        sha256: of the bytes, as hexadecimal digits.
    """

    name: str
    size: int
    sha256: str


PartPath = tuple[str | int, ...]
"""Keys and indexes that lead to a part of a value."""


class KeptPart(msgspec.Struct, frozen=True):
    """A part of a value in JSON that is kept elsewhere.

    Attributes:
        at: its path within the value, which has null there; in a message it begins with `args` or `kwargs`.
    """

    at: PartPath
    blob: BlobReference


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A call of one task. Times are milliseconds since the epoch, UTC.

    Attributes:
        v: version of the wire form; 0 if the sender omitted it, which means 1.
        id: the job's id, the same in every attempt.
        attempt: from 1.
        eta: the job does not run before this instant; None: immediately.
        expires: the job does not start at or after this instant.
        root: id of the first job of the chain that this one descends from.
        parent: id of the job that sent this one.
        key: idempotency key.
        order_key: jobs of one key run one at a time, in the order of sending; in ordered queues only.
        step_of: the run, a slash, and the step that the job executes.
        trace: W3C `traceparent`.
        store: of a stored job: its worker reports the outcome.
        blob: location of the arguments, if the message does not carry them.
        parts: parts of the arguments that the message does not carry; None: it carries all.
        preemptible: whether the scheduler may stop the run of a stored job for other jobs; None: as its task says.
        run: options of the job's runs that differ from its task's.
        earlier: attempts before an ended stored job was resumed: the retries of its task count from there.
        limits: keys of a stored job's limits, computed at its submission: by kind and name of the limit.
    """

    v: int = 0
    id: str = ""
    task: str
    args: msgspec.Raw = _NO_ARGS
    kwargs: msgspec.Raw = NO_KWARGS
    attempt: int = 1
    enqueued: InstantMs | None = None
    eta: InstantMs | None = None
    expires: InstantMs | None = None
    root: str | None = None
    parent: str | None = None
    key: str | None = None
    order_key: str | None = None
    step_of: str | None = None
    tenant: str | None = None
    priority: int | None = None
    trace: str | None = None
    meta: dict[str, str] | None = None
    store: Invitation | None = None
    blob: BlobReference | None = None
    parts: tuple[KeptPart, ...] | None = None
    preemptible: bool | None = None
    run: RunOptions | None = None
    earlier: Annotated[int, msgspec.Meta(ge=0)] = 0
    limits: dict[str, str] | None = None

    @property
    def has_references(self) -> bool:
        """Whether arguments, or parts of them, have to be loaded before the run."""
        return self.blob is not None or self.parts is not None


_json_encoder = msgspec.json.Encoder()
_msgpack_encoder = msgspec.msgpack.Encoder()
_json_decoder = msgspec.json.Decoder(Envelope)
_msgpack_decoder = msgspec.msgpack.Decoder(Envelope)
_json_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_msgpack_fields = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])


def encode_envelope(envelope: Envelope, content_type: str = JSON) -> bytes:
    """Encode `envelope`, whose `args` and `kwargs` must have the same content type.

    Raises:
        EncodeError: the content type is unknown, or a text or number cannot be encoded in it.
    """
    try:
        if content_type == JSON:
            return _json_encoder.encode(envelope)
        if content_type == MSGPACK:
            return _msgpack_encoder.encode(envelope)
    except (UnicodeEncodeError, OverflowError) as error:
        raise EncodeError(f"the envelope cannot be encoded: {error}") from error
    raise EncodeError(f"content type {content_type!r} is unknown: use {JSON} or {MSGPACK}")


def decode_envelope(body: bytes, content_type: str | None = JSON) -> Envelope:
    """Decode `body`; a missing content type means JSON.

    Raises:
        MalformedMessage: the body cannot be read, or its version is unknown.
    """
    try:
        if content_type == JSON:
            envelope = _json_decoder.decode(body)
        elif content_type == MSGPACK:
            envelope = _msgpack_decoder.decode(body)
        elif content_type is None or content_type.partition(";")[0].strip() in (JSON, ""):
            envelope = _json_decoder.decode(body)
        else:
            raise MalformedMessage(f"content type {content_type!r} is unknown: use {JSON} or {MSGPACK}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"the body is not a task: {type(error).__name__}: {error}") from error
    if not 0 <= envelope.v <= IN_PARTS:
        raise MalformedMessage(
            f"the body has version {envelope.v}; this taskmq reads versions {VERSION} to {IN_PARTS}"
        )
    if not 1 <= envelope.attempt <= _LAST_ATTEMPT:
        raise MalformedMessage(f"attempt is {envelope.attempt}; the first one is 1, the last {_LAST_ATTEMPT}")
    if envelope.store is not None and not _is_reports_queue(envelope.store.reports):
        raise MalformedMessage(f"`$.store.reports` is no queue for reports: {envelope.store.reports[:80]!r}")
    return envelope


def amend(body: bytes, content_type: str | None, changes: Mapping[str, Any]) -> bytes:
    """Return `body` with some fields changed and all others kept byte for byte, including unknown ones.

    Args:
        body: a body that `decode_envelope` reads.
        content_type: its content type; None is JSON.
        changes: new values by field name; None removes a field.

    Raises:
        MalformedMessage: the body is not an object.
        EncodeError: a new value cannot be encoded.
    """
    is_msgpack = content_type == MSGPACK
    encoder: msgspec.json.Encoder | msgspec.msgpack.Encoder = _msgpack_encoder if is_msgpack else _json_encoder
    try:
        fields = (_msgpack_fields if is_msgpack else _json_fields).decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"the body is not a task: {error}") from error
    try:
        for name, value in changes.items():
            if value is None:
                fields.pop(name, None)
            else:
                fields[name] = msgspec.Raw(encoder.encode(value))
        return encoder.encode(fields)
    except (UnicodeEncodeError, OverflowError, TypeError) as error:
        raise EncodeError(f"{', '.join(changes)}: a new value cannot be encoded: {error}") from error


def check_task_name(name: str) -> str:
    """Return `name` if it is a valid task name.

    Raises:
        InvalidOption: it is not.
    """
    if _TASK_NAME.fullmatch(name) is None:
        raise InvalidOption(f"task name {name[:80]!r}: 1 to 128 characters of A-Z a-z 0-9 _ . : -")
    return name


def new_job_id(now_ms: int, random: bytes) -> str:
    """Return a time-ordered UUID (RFC 9562, version 7).

    Args:
        now_ms: milliseconds since the epoch.
        random: at least 10 random bytes.
    """
    chance = random.hex()
    return f"{_time_in_front(now_ms)}{chance[1:4]}-{_VARIANT[random[2] & 0x3F]}{chance[6:8]}-{chance[8:20]}"


def submitted_at(job_id: str) -> int:
    """Return the instant at which a stored job was submitted, ms since the epoch: the first 48 bits of its id."""
    return int(job_id[:8] + job_id[9:13], 16)


# The invitations of one scheduler name at most as many queues as it holds partitions.
@lru_cache(64)
def _is_reports_queue(name: str) -> bool:
    return _REPORTS.fullmatch(name) is not None


# Many jobs are created in one millisecond.
@lru_cache(2)
def _time_in_front(now_ms: int) -> str:
    return f"{now_ms >> 16 & 0xFFFF_FFFF:08x}-{now_ms & 0xFFFF:04x}-7"
