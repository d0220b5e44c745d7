"""The engine below `local://` and `sqlite:///`: one SQLite file, written by one thread of each process that uses it.

A `FileThread` collects work items on its event loop while its thread is busy, and passes them on together. So work
items that arrive meanwhile share a transaction and one sync of the disk, and transactions grow with the load. A
transaction accepts no more work items after 20 ms: other processes write to the same file, and short work items must
not wait behind many others.

A `FileConnection` runs the work items in its thread, and reruns them from the start if others had locked the file. So
a work must change nothing but the file. If one work item fails, the others of its transaction do not. A work item's
`Care` says how durable its commit must be.

A `FileKind` describes a file's contents: its tables by version, and its errors. There are two kinds in two files on
purpose: a long change of stored jobs must not delay a publish, an acknowledgement or a lease.

A `MemoryFile` has the same tables in memory. It runs work items immediately and without a thread, so tests with a
clock of their own never have to wait.
"""
