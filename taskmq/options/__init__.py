"""Options of a task, and of one call of it.

    task_options  the options of `@app.task` and `.options(...)`, checked where the task is defined
    keys          keys made of arguments: idempotency, uniqueness, order, limits
    uniqueness    how long a unique job blocks its equals
    limits        rate and concurrency limits

Every option is refused at definition if it is misspelt or cannot work.
"""
