"""Ended jobs beyond the time for which a store keeps them, and before it.

archive   whole days into files: written, read back, compared, and only then forgotten
erase     what a filter finds, or a tenant, for good
rules     for how long jobs are kept, as `--keep` says
"""

from taskmq.operations.retention.archive import (
    Advance,
    ArchivedDay,
    archive_days,
    check_archive,
    read_archive,
    retaining,
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
    "retaining",
    "thin_out",
]
