"""Conversions of values to the form that the tables hold."""

import hashlib
import os
import re
import struct
from collections.abc import Iterable
from typing import Final

import msgspec

from taskmq.contracts.jobs import JobDetail, NewJob
from taskmq.model.jobs.registrations import TaskRegistration, encode_registration
from taskmq.model.outcome import ErrorRecord
from taskmq.model.units import DAY_MS, storable

KEPT_MS: Final = 30 * DAY_MS
"""Retention of a form of a task after its last report."""
LAST_CHARACTER: Final = "\U0010ffff"
"""Appended to a prefix, an upper bound of all names that begin with it."""

_DIGEST_BYTES: Final = 16
_JOB_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_encoder: Final = msgspec.json.Encoder(order="deterministic")
_decoder: Final = msgspec.json.Decoder(JobDetail)


class _Owner(msgspec.Struct):
    owner: str = ""


_owner_decoder: Final = msgspec.json.Decoder(_Owner)


def is_job_id(text: str) -> bool:
    """Whether the text is a UUID in the form that the store issues."""
    return _JOB_ID.fullmatch(text) is not None


def is_plain(job: NewJob) -> bool:
    """Return whether the job has no id of its submitter, unique key, line or dependency."""
    has_dependencies = job.detail is not None and bool(job.detail.depends_on)
    return job.key is None and job.unique is None and job.line is None and not has_dependencies


def shard_of(job_id: str) -> int:
    """Return the timer shard of a job."""
    return int(job_id[-2:], 16) & 63


def escape_error(error: ErrorRecord) -> ErrorRecord:
    return ErrorRecord(
        type_name=storable(error.type_name), message=storable(error.message), traceback=storable(error.traceback)
    )


def reason(text: str) -> ErrorRecord:
    """Describe an end that is not the task's failure."""
    return ErrorRecord(type_name="", message=storable(text), traceback="")


def chances(count: int) -> list[int]:
    """Return the random bits of the tokens of so many dispatches, 32 each."""
    return list(struct.unpack(f"{count}I", os.urandom(4 * count)))


def encode_detail(detail: JobDetail) -> str:
    """Encode as JSON; text that JSON cannot represent is escaped."""
    try:
        return _encoder.encode(detail).decode()
    except UnicodeEncodeError:
        kept = msgspec.structs.replace(
            detail,
            description=storable(detail.description),
            owner=storable(detail.owner),
            labels={storable(name): storable(value) for name, value in detail.labels.items()},
            definition=storable(detail.definition),
            retry_of=storable(detail.retry_of),
        )
        return _encoder.encode(kept).decode()


def decode_detail(text: str | None) -> JobDetail | None:
    return None if text is None else _decoder.decode(text)


def owner_in(text: str | None) -> str:
    """Return the owner in a job's detail without decoding the rest of it; "" for none."""
    return "" if text is None else _owner_decoder.decode(text).owner


def can_be_kept(*texts: str) -> bool:
    """Whether a database can hold the texts: no NUL, no lone surrogates."""
    return not any(
        "\0" in text or (not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text))
        for text in texts
    )


def forms_of(registrations: Iterable[TaskRegistration]) -> list[tuple[str, bytes, str]]:
    """Return task, digest and content of each distinct form, sorted by key."""
    forms: dict[tuple[str, bytes], str] = {}
    for one in registrations:
        content = encode_registration(one)
        digest = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
        forms[one.task, digest] = content.decode()
    return [(*key, content) for key, content in sorted(forms.items())]
