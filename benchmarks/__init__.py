"""taskmq beside its peers: one command, the same broker, the same work, in turns.

Model. A *contender* (taskmq, Celery, Dramatiq, Taskiq, FastStream; arq and streaQ on Redis; the floors in C, on pika
and on aio-pika) lives in a virtual environment of its own and has *setups* (how its worker is started). A *cell* is
one piece of work on one kind of queue for one setup; it is run several times, in rounds, so that no contender has the
quiet half of the hour. What a task does is the same for all (`peers/tally.py`), and what is measured is what the
tasks wrote down and what the kernel charged the processes with.

    contender    what a contender is              goals        what was aimed at, and what became of it
    contenders   who takes part                   cell         what was measured
    plan         which cells there are            report       JSON, tables and plots
    cells        one run of one cell              pace         how long it still takes
    floors       the same in C                    provision    virtual environments, the C program
    ground       the servers, and one run's files
    counted      how many tasks have run          processes    processor time and memory of process trees
"""
