"""Bulk operations: one action on all stored jobs that match a filter.

`act_on_page` handles one page; the caller sets the pace, and aborts by not asking for the next page. `TenantBulks`
stores a bulk, and any `BulkRunner` executes it. If a runner dies, the next one takes over, and no job is acted on
twice.
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
