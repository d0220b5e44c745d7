"""Where the files of servers are: in memory where there is plenty, since they wait for the disk most of their time.

What a server has written survives its own death there as on a disk, and nothing here outlives the machine.
"""

import functools
import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["room_for_servers"]

_IN_MEMORY = Path("/dev/shm")
_PLENTY = 8 * 1024**3


@functools.cache
def room_for_servers() -> Path:
    """The directory for their directories; $TASKMQ_TEST_ROOM goes first."""
    if given := os.environ.get("TASKMQ_TEST_ROOM"):
        return Path(given)
    if _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free >= _PLENTY:
        return _IN_MEMORY
    return Path(tempfile.gettempdir())
