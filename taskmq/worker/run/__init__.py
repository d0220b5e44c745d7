"""An attempt, from a slot to its outcome.

`fast_path` runs plain coroutines that finish without waiting, in one call. Everything else goes through `processor`,
which executes and never raises; `taskmq.worker.settlement` settles the outcome. `task_pool` holds the asyncio tasks
of runs, `thread_runs` the runs in threads. `crash_counter` counts starts without an end, and `poison` isolates the
jobs that cause them.
"""
