"""The embedded broker and state of taskmq: `memory://NAME` in one process, `local://PATH` on one host.

**Memory.** A name stands for a `MemoryData`, shared by all brokers and states of the process, on any thread and loop.
Queues, results, begun runs and revocations are plain data behind a lock. The other stores are the tables of
`taskmq.db` in memory. Nothing outlives the process; `forget_memory` drops it earlier.

**Local.** PATH is a directory:

    taskmq.db       all data: queues, messages, leases, results (SQLite, WAL)
    owners/NAME     one file per consuming broker, locked by its process for its lifetime
    wake/KIND-NAME  one FIFO per waiting broker or state: one byte means "poll now"

Each broker or state object runs its SQLite work in its own thread (`Database`). The event loop collects work items
(publishes, acks, leases, results) while the thread is busy and passes them on together: one transaction and one sync
of the disk, however many there are. Their futures end after the commit.

Announcements are rows that all listeners read and that expire after half a minute (`broker.listener`).

A message is `ready` in its queue, leased by an `Owner`, or `delayed`. Its id is its position, so a requeued message
comes first again. Leasing a message writes a row without a sync; acknowledging deletes lease and message with one.

Failures:

- A process dies, by whatever means: the kernel releases the lock on its owner file. Every consuming broker tries the
  locks of the others once a second and requeues a dead owner's messages as redelivered. Confirmed and acknowledged
  messages stay so; a transaction that was not committed never happened.
- A process is stopped (SIGSTOP) or busy: it keeps its lock and its messages. If it stops in the middle of a commit,
  the file stays locked: others wait, and their publishes end with `BrokerUnavailable` at their deadline.
- The power fails: confirmed messages are on the disk (synchronous=FULL). All owners are dead afterwards.
- The disk is full or the file unreadable: publishes fail with `BrokerUnavailable` and SQLite's message. Settlements
  are kept and retried once a second; consumers report the problem (`healthy`) and retry.
- A wakeup is lost: the poll once a second makes up for it.
- Two processes open a new directory: one creates the tables under the file's lock, the other finds them.

PATH must be on a local file system: SQLite's locks and shared memory do not work over the network. A broker object
does not survive a fork; open one in the child.

The names below load on first use, so a process imports only the parts that it uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_MODULE_OF = {
    "FileBlobs": "file_blobs",
    "MemoryBroker": "memory.broker",
    "MemoryState": "memory.state",
    "forget_memory": "memory.data",
    "open_file_blobs": "file_blobs",
    "open_local_broker": "open",
    "open_local_state": "open",
    "open_memory_broker": "memory.broker",
    "open_memory_state": "memory.state",
}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
