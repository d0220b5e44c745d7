"""Dead letters as lines of JSON, for other tools. Pure."""

import base64
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from taskmq.operations.dead_letters.letter import DeadLetter


def letter_record(letter: DeadLetter) -> dict[str, Any]:
    """Return a letter with its whole message as JSON values.

    A text body is in `body`, any other in `body_base64`. Times are ms since the epoch.
    """
    record: dict[str, Any] = {
        "job": letter.job_id,
        "task": letter.task,
        "tenant": letter.tenant,
        "queue": letter.queue,
        "attempt": letter.attempt,
        "reason": letter.reason,
        "error": letter.error,
        "error_type": letter.error_type,
        "fingerprint": letter.fingerprint,
        "enqueued": letter.enqueued,
        "started": letter.started,
        "died": letter.died,
        "worker": letter.worker,
        "replayed": letter.replayed,
        "traceback": letter.traceback,
        "content_type": letter.content_type,
        "headers": _plain(letter.headers),
    }
    try:
        record["body"] = letter.body.decode()
    except UnicodeDecodeError:
        record["body_base64"] = base64.b64encode(letter.body).decode()
    return record


def letter_line(letter: DeadLetter) -> bytes:
    """Encode `letter_record` as one line of JSON, with a newline."""
    return msgspec.json.encode(letter_record(letter)) + b"\n"


def _plain(value: object) -> Any:
    """Convert the value of a foreign header to JSON types."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            entries = cast("Mapping[object, object]", value)
            return {str(name): _plain(entry) for name, entry in entries.items()}
        case list():
            return [_plain(entry) for entry in cast("list[object]", value)]
        case _:
            return str(value)
