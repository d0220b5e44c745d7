"""One name for all failures that are the same failure. Pure.

Two letters are of one failure when task, reason, error type and the innermost frames agree. A frame is its file's
name and its function: line numbers move with every edit, and folders with every machine. The error's message
counts only where there is no traceback, and then without what differs from one job to the next: numbers,
addresses, ids and quoted values.
"""

import hashlib
import re
from typing import Final

__all__ = ["fingerprint"]

_FRAMES: Final = 5
_LENGTH: Final = 12

_FRAME: Final = re.compile(r'^[ |+]*File "(?P<file>[^"\n]*)", line \d+(?:, in (?P<function>[^\n]*))?$', re.MULTILINE)
# Where one exception of a chain ends and the next begins; the last one is what the task ended with.
_LINK: Final = re.compile(
    r"^[ |]*(?:The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):$",
    re.MULTILINE,
)
# Where an exception group's own traceback ends and those of its exceptions begin.
_MEMBER: Final = re.compile(r"^[ |]*(?:\+-)?\+-{4,}.*$", re.MULTILINE)
_QUOTED: Final = re.compile(r"""(?<!\w)'[^'\n]*'|"[^"\n]*"|`[^`\n]*`""")
_HEX: Final = re.compile(r"\b(?:0[xX])?[0-9a-fA-F]*\d[0-9a-fA-F]*\b(?:-[0-9a-fA-F]{2,})*")
_DIGITS: Final = re.compile(r"\d+")
_SPACE: Final = re.compile(r"\s+")


def fingerprint(*, task: str, reason: str, error_type: str, message: str, traceback: str) -> str:
    """Twelve hexadecimal digits, the same for the same failure.

    Args:
        task: its name.
        reason: why the job is dead.
        error_type: the exception's qualified name; empty where there was none.
        message: what the exception said.
        traceback: as Python prints one; the beginning may be missing.
    """
    where = _places(traceback) or [_without_values(message)]
    parts = (task, _without_values(reason), error_type, *where)
    return hashlib.sha256("\0".join(parts).encode(errors="backslashreplace")).hexdigest()[:_LENGTH]


def _places(traceback: str) -> list[str]:
    """The innermost frames of what the task ended with; of a group, those of its exceptions too, in no order."""
    own, *members = _MEMBER.split(traceback) if "+----" in traceback else [traceback]
    within = {"; ".join(_frames(member)) for member in members}
    return [*_frames(own), *sorted(within - {""})]


def _frames(block: str) -> list[str]:
    if " exception" in block:
        block = _LINK.split(block)[-1]
    at = len(block)
    # Only the end is read: tracebacks are long.
    for _ in range(_FRAMES):
        if (before := block.rfind('  File "', 0, at)) < 0:
            break
        at = before
    found = [
        (frame["file"], frame["function"] or "") for frame in _FRAME.finditer(block, block.rfind("\n", 0, at) + 1)
    ]
    return [f"{_file_name(file)}:{_DIGITS.sub('#', function.strip())}" for file, function in found[-_FRAMES:]]


def _file_name(path: str) -> str:
    """Without its folders, be they written with one slash or the other; digits too may be a generated name's."""
    return _DIGITS.sub("#", re.split(r"[/\\]", path)[-1])


def _without_values(text: str) -> str:
    """What is the same in the messages of one failure."""
    text = _QUOTED.sub("'…'", text)
    return _SPACE.sub(" ", _DIGITS.sub("#", _HEX.sub("#", text))).strip()
