"""Campaigns: the product as real processes under load, a broker that fails on purpose, and a judge.

    producer processes --sends ledger-->  \\
                                            checker.judge --> Verdict: lost, phantom, ghost, early, duplicated
    worker processes   --runs ledger--->  /
                                          the driver breaks the broker meanwhile and notes when

Each producer writes one line per `send` (what it was told, and how long that took), each worker one line per run.
Nothing else is believed: what the broker or the workers say about themselves is not asked. A campaign is small by
default; `$TASKMQ_TEST_...` variables, named in each module, make it long. Its figures are one printed line.

`field` starts producers and workers, `probe` measures how soon every consumer is back, `gauge` what they hold,
`storm` breaks connections, `checker` judges.
"""
