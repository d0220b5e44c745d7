"""Retention of ended jobs: archive them, or forget them early.

archive   writes whole days to files, and forgets them only after reading the files back
erasure   erases the jobs of a filter or a tenant for good
rules     says how long jobs are kept, as `--keep` does
"""

from taskmq.operations.retention.archive import (
    Advance,
    ArchivedDay,
    archive_days,
    check_archive,
    read_archive,
    require_retaining,
)
from taskmq.operations.retention.erasure import Erased, erase_jobs, thin_out
from taskmq.operations.retention.rules import KeepRule

__all__ = [
    "Advance",
    "ArchivedDay",
    "Erased",
    "KeepRule",
    "archive_days",
    "check_archive",
    "erase_jobs",
    "read_archive",
    "require_retaining",
    "thin_out",
]
