"""One attempt, from a slot to its settled outcome.

`fast_path` runs plain coroutines that finish without waiting, in one call. Everything else goes through `processor`,
which executes and never raises, and `settle`, which makes the outcome durable before it acknowledges. `task_pool`
holds the asyncio tasks that carry runs, `thread_runs` the runs in threads. `crash_counter` counts starts without an
end and `poison` isolates the jobs that cause them.
"""
