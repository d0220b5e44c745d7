"""The demo of taskmq on real files.

`measure` analyzes one file without any queue; `tasks` wraps it in tasks; `run` starts a worker with two processes and
a scheduler, sends one task per file, and compares the results with a plain loop over the same files.
"""

__all__: list[str] = []
