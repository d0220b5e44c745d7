"""The demo: taskmq's main job on real files.

`measure` is what one file costs to look at, without any queue; `tasks` makes tasks of it; `run` starts a
worker with two processes and a scheduler, sends one task per file, and holds what came back against a plain loop
over the same files.
"""

__all__: list[str] = []
