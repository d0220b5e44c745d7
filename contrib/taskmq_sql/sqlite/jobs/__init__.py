"""What is done to jobs, each as one function that is called with a transaction.

One process writes at a time, and sees all that was committed before: so a job is read, decided about in Python, and
written, and nothing comes between. Jobs are read and written by the hundred all the same.
"""
