"""Campaigns: the product as real processes under load, an unreliable broker, and a judge.

    producer processes --sends ledger-->  \\
                                            checker.judge --> Verdict: lost, phantom, ghost, early, duplicated
    worker processes   --runs ledger--->  /
                                          the driver breaks the broker meanwhile and records when

Each producer writes one line per `send` (its result and duration), each worker one line per run. Only these are
trusted; the statements of the broker and the workers are ignored. A campaign is small by default;
`$TASKMQ_TEST_...` variables, named in each module, make it long. Its figures are one printed line.

`field` starts producers and workers, `probe` measures how soon every consumer returns, `gauge` measures their
resources, `storm` breaks connections, `checker` judges.
"""
