"""Dependencies of tasks: parameters declared with `Depends(...)`.

`plan` reads a task's signature once, at definition, and finds what has to be provided, in which order and for how
long. `resolve` provides it for one run and releases it afterwards, in reverse order.
"""
