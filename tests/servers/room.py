"""The directory of servers' files: in memory if there is plenty, since they mostly wait for the disk.

Writes of a server survive its own death there as on a disk, and nothing here outlives the machine.
"""

import functools
import os
import shutil
import tempfile
from pathlib import Path

_IN_MEMORY = Path("/dev/shm")
_PLENTY = 8 * 1024**3


@functools.cache
def room_for_servers() -> Path:
    """Return the parent of their directories; $TASKMQ_TEST_ROOM overrides it."""
    if given := os.environ.get("TASKMQ_TEST_ROOM"):
        return Path(given)
    if _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free >= _PLENTY:
        return _IN_MEMORY
    return Path(tempfile.gettempdir())
