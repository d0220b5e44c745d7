"""Dependencies of tasks: parameters declared with `Depends(...)`.

`plan` reads a task's signature once, at definition, and determines the providers, their order and their lifetime.
`resolve` calls them for one run and releases their values afterwards, in reverse order.
"""
