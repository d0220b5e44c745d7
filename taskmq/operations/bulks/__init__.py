"""Doing the same to many jobs of the store that a filter finds.

`act_on_page` does it to one page: the caller sets the pace, and aborts by stopping. `TenantBulks` keeps a bulk
in the store, and `BulkRunner` carries it out, wherever it runs: the next runner takes over from one that dies, and
each job is done to at most once.
"""

from taskmq.model.jobs.bulks import BulkAction
from taskmq.operations.bulks.pages import BulkChange, BulkPage, BulkRefusal, act_on_page, check_change
from taskmq.operations.bulks.runner import BulkRunner
from taskmq.operations.bulks.tenant_bulks import BulkOrder, StoredBulks, TenantBulks

__all__ = [
    "BulkAction",
    "BulkChange",
    "BulkOrder",
    "BulkPage",
    "BulkRefusal",
    "BulkRunner",
    "StoredBulks",
    "TenantBulks",
    "act_on_page",
    "check_change",
]
