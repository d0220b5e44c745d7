"""Ended jobs beyond the time for which a store keeps them, and before it.

archive   whole days into files: written, read back, compared, and only then forgotten
erase     what a filter finds, or a tenant, for good
"""

from taskmq.operations.retention.archive import Advance, ArchivedDay, archive_days, check_archive, read_archive
from taskmq.operations.retention.erasure import Erased, erase_jobs, thin_out

__all__ = [
    "Advance",
    "ArchivedDay",
    "Erased",
    "archive_days",
    "check_archive",
    "erase_jobs",
    "read_archive",
    "thin_out",
]
