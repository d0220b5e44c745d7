"""What a worker does beside running tasks.

It publishes events, obeys commands, keeps the list of cancelled jobs, and relays delayed messages from the state to
the broker. None of it may hold up a job.
"""
