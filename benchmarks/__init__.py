"""Comparison of taskmq with its peers: one command, the same broker, the same work, in turns.

Model. A *contender* (taskmq, Celery, Dramatiq, Taskiq, FastStream; arq and streaQ on Redis; the floors in C, on pika
and on aio-pika) has its own virtual environment and *setups* (ways to start its worker). A *cell* is one piece of
work on one kind of queue for one setup. Each cell runs once per round, so that no contender gets the quiet half of
the hour. Every contender's tasks do the same work (`peers/tally.py`). The figures come from what the tasks recorded
and from the processor time that the kernel charged to the processes.

    contender    definition of a contender        goals        performance goals and verdicts
    contenders   list of contenders               cell         figures of one cell
    plan         list of cells                    report       JSON, tables and plots
    cells        one run of one cell              pace         estimate of the remaining time
    floors       the same work in C               provision    virtual environments, the C program
    ground       servers and files of a run       processes    processor time and memory of process trees
    counted      number of finished tasks
"""
