"""Fingerprints that identify letters with the same failure. Pure.

Two letters share a failure if their task, reason, error type and innermost frames agree. A frame counts as its
file's name and its function, because line numbers change with every edit and folders with every host. The error
message counts only if there is no traceback, and then without the values that differ from job to job: numbers,
addresses, ids and quoted text.
"""

import hashlib
import re
from typing import Final

_FRAMES: Final = 5
_LENGTH: Final = 12

_FRAME: Final = re.compile(r'^[ |+]*File "(?P<file>[^"\n]*)", line \d+(?:, in (?P<function>[^\n]*))?$', re.MULTILINE)
# Separates the exceptions of a chain; the last one ended the task.
_LINK: Final = re.compile(
    r"^[ |]*(?:The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):$",
    re.MULTILINE,
)
# Separates an exception group's own traceback from those of its exceptions.
_MEMBER: Final = re.compile(r"^[ |]*(?:\+-)?\+-{4,}.*$", re.MULTILINE)
_QUOTED: Final = re.compile(r"""(?<!\w)'[^'\n]*'|"[^"\n]*"|`[^`\n]*`""")
_HEX: Final = re.compile(r"\b(?:0[xX])?[0-9a-fA-F]*\d[0-9a-fA-F]*\b(?:-[0-9a-fA-F]{2,})*")
_DIGITS: Final = re.compile(r"\d+")
_SPACE: Final = re.compile(r"\s+")


def fingerprint(*, task: str, reason: str, error_type: str, message: str, traceback: str) -> str:
    """Return twelve hexadecimal digits that are equal for equal failures.

    Args:
        task: the task's name.
        reason: why the job died.
        error_type: qualified name of the exception; empty if there was none.
        message: message of the exception.
        traceback: in Python's format; the beginning may be missing.
    """
    where = _extract_frames(traceback) or [_mask_values(message)]
    parts = (task, _mask_values(reason), error_type, *where)
    return hashlib.sha256("\0".join(parts).encode(errors="backslashreplace")).hexdigest()[:_LENGTH]


def _extract_frames(traceback: str) -> list[str]:
    """Return the innermost frames of the final exception, then those of a group's members, sorted."""
    own, *members = _MEMBER.split(traceback) if "+----" in traceback else [traceback]
    within = {"; ".join(_parse_frames(member)) for member in members}
    return [*_parse_frames(own), *sorted(within - {""})]


def _parse_frames(block: str) -> list[str]:
    if " exception" in block:
        block = _LINK.split(block)[-1]
    at = len(block)
    # Tracebacks are long, and only the end matters.
    for _ in range(_FRAMES):
        if (before := block.rfind('  File "', 0, at)) < 0:
            break
        at = before
    found = [
        (frame["file"], frame["function"] or "") for frame in _FRAME.finditer(block, block.rfind("\n", 0, at) + 1)
    ]
    return [f"{_file_name(file)}:{_DIGITS.sub('#', function.strip())}" for file, function in found[-_FRAMES:]]


def _file_name(path: str) -> str:
    """Strip folders and digits from a path. Both kinds of slash occur, and generated names contain digits."""
    return _DIGITS.sub("#", re.split(r"[/\\]", path)[-1])


def _mask_values(text: str) -> str:
    """Replace the values in a message that differ between jobs with the same failure."""
    text = _QUOTED.sub("'…'", text)
    return _SPACE.sub(" ", _DIGITS.sub("#", _HEX.sub("#", text))).strip()
