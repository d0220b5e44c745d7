"""taskmq beside its peers: one command, the same broker, the same work, in turns.

Model. A *contender* (taskmq, Celery, Dramatiq, Taskiq, FastStream, and the floor in C) lives in a virtual
environment of its own and has *setups* (how its worker is started). A *cell* is one piece of work (enqueue, drain,
latency, delayed, start) on one kind of queue for one setup; it is run several times, in rounds, so that no
contender has the quiet half of the hour. What a task does is the same for all (`peers/tally.py`), and what is
measured is what the tasks wrote down and what the kernel charged the processes with.

    contenders   who takes part, and how each is started and asked
    provision    virtual environments, the C program
    processes    processor time and memory of process trees
    ground       the broker, and one run's files
    cells        one run of one cell
    report       JSON, table and plots
"""
