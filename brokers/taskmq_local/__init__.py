"""The embedded broker and state of taskmq: `memory://NAME` in one process, `local://PATH` on one host.

**Memory.** A name stands for a `MemoryData`: plain data behind a lock, shared by all brokers and states of the
process, on any thread and loop. Nothing outlives the process; `forget_memory` drops it earlier.

**Local.** PATH is a directory:

    taskmq.db       everything that counts: queues, messages, leases, results (SQLite, WAL)
    owners/NAME     one per broker that takes messages: locked by its process as long as that lives
    wake/KIND-NAME  a FIFO per waiting broker or state: one byte means "look again"

Each broker or state object does its SQLite work in one thread of its own (`Database`). The event loop gathers works
(publishes, acks, leases, results) while the thread is busy and hands them over together: one transaction, one sync
of the disk, however many they are. A future ends after the commit.

Announcements are rows that all who listen read and that expire after half a minute (`broker.listener`).

A message is `ready` in its queue, or leased by an `Owner`, or `delayed`. Its id is its place: given back, it comes
first again. Taking writes a lease and is not synced; acknowledging deletes lease and message and is.

What happens when:

- A process dies, by whatever means: the kernel drops the lock on its owner file. Every consuming broker tries the
  locks of the others once a second, and gives back what a dead owner held, as redelivered. What was confirmed or
  acknowledged stays so; a transaction that was not committed never was.
- A process is stopped (SIGSTOP) or busy: it keeps its lock and its messages. Stopped in the middle of a commit it
  also keeps the file locked: others wait, and their publishes end with `BrokerUnavailable` at their deadline.
- The power fails: what was confirmed is on the disk (synchronous=FULL). All owners are dead then.
- The disk is full, the file unreadable: publishes fail with `BrokerUnavailable` and sqlite's words; settlings are
  kept and repeated once a second; consumers say so (`healthy`) and try on.
- A wake-up is lost: the look that is taken once a second finds what there is.
- Two processes open a new directory: one makes the tables under the file's lock, the other finds them.

PATH must be on a local file system: locks and shared memory of SQLite do not work over the network. A broker object
does not survive a fork; open one in the child.
"""

from taskmq_local.file_blobs import FileBlobs, open_file_blobs
from taskmq_local.memory.broker import MemoryBroker, open_memory_broker
from taskmq_local.memory.data import forget_memory
from taskmq_local.memory.state import MemoryState, open_memory_state
from taskmq_local.open import open_local_broker, open_local_state

__all__ = [
    "FileBlobs",
    "MemoryBroker",
    "MemoryState",
    "forget_memory",
    "open_file_blobs",
    "open_local_broker",
    "open_local_state",
    "open_memory_broker",
    "open_memory_state",
]
