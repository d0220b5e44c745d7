"""Lua scripts, read from their files."""

import hashlib
import re
from functools import cached_property
from importlib.resources import files

_INCLUDE = re.compile(r"^-- include (\S+)$", re.MULTILINE)


class Script:
    """A script by its source and its hash; read on first use.

    Args:
        name: of its file, without `.lua`. A line `-- include NAME` is replaced by the file of that name.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def source(self) -> bytes:
        return _read(self._name).encode()

    @cached_property
    def digest(self) -> bytes:
        # Redis names scripts by their SHA-1; this is not a security measure.
        return hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()


def _read(name: str) -> str:
    text = files("taskmq_redis.scripts").joinpath(f"{name}.lua").read_text("utf-8").strip()
    return _INCLUDE.sub(lambda found: _read(found[1]), text)
