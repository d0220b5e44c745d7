"""A streaming standby that answers reads whose callers accept its age.

    caller accepts an age -> Shown -> Replica: does it recover, from the same server, recently enough? -> standby
                                          | no, or it fails
                                          +-> primary

The age of an answer is measured, not estimated: once a second the position of the primary's log is read, with the
instant. A standby that has replayed the log up to such a position has everything that was visible at that instant.
That holds on an idle primary, too, whose last transaction may be hours ago. A commit that does not wait for the disk
may be visible up to three `wal_writer_delay` (0.6 s) before the position includes it.
"""

from taskmq_sql.postgres.replica.positions import Positions
from taskmq_sql.postgres.replica.standby import Replica, Shown

__all__ = ["Positions", "Replica", "Shown"]
