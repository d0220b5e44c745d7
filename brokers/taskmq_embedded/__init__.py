"""The engine below `local://` and `sqlite:///`: one SQLite file, written by one thread of each process that uses it.

A `FileThread` gathers works on its event loop while its thread is busy, and hands them over together: what has come
up meanwhile shares a transaction and one sync of the disk, so transactions grow with the load by themselves. A
transaction takes no more works once it has lasted 20 ms: others write to the same file, and a work that follows a
long one waits for no more than that one.

A `FileConnection` runs the works in its thread, and from the start again where others had locked the file: a work
changes nothing but the file. Where one work fails the others of its transaction do not. How long a commit has to
last is the work's `Care`.

A `FileKind` says what a file holds: its tables in their versions, and the names of its failures. There are two, and
they are two files on purpose: a long change of stored jobs holds up no publish, acknowledgement or lease.

A `MemoryFile` has the same tables in memory: works are run where they are asked for, without a thread, so that tests
with a clock of their own need to wait for nothing.
"""
