"""Guarantees that survive the failure of processes and servers: built once, used by every part that needs them.

- `listen` subscribes to announcements as soon as the broker permits it.
- `LeaseKeeper` renews the leases of this process.
- `Relay` publishes the messages of an outbox, and deletes them once that is confirmed.
- `ServiceGroup` owns the long-lived parts of a process: starts, restarts and stops them.
- `serving` reports over HTTP whether the process is live and ready, and its status.
- `Watermark` detects that a store went back.
- `Lookback` finds new entries of a store, each once.
- `TaskSet` owns short pieces of work without a waiter.
"""
