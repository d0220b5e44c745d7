"""What keeps a promise while processes and servers come and go: built once, used by every part that makes one.

- `listen` hears announcements as soon as the broker permits it.
- `LeaseKeeper` renews what this process holds under leases.
- `Relay` publishes what an outbox keeps, and has it forgotten once that is confirmed.
- `ServiceGroup` owns the parts that live as long as the process: starts, restarts and stops them.
- `serving` shows others, over HTTP, whether the process is live, ready, and what it has done.
- `Watermark` notices that a store went back.
- `Lookback` finds what a store has new, each entry once.
- `TaskSet` owns short pieces of work without a waiter.
"""
