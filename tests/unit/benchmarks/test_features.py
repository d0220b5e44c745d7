"""The table of the cost of features."""

from benchmarks.features import FEATURES, Feature, table

_BARE = {"runs_per_second": 9000.0, "worker_us": 10.0, "sender_us": 20.0, "redis_us": 0.0}
_COUNTS = {"scripts": 0.0, "commands": 0.0}


def test_each_row_is_the_cost_above_bare_tasks_of_the_same_mode() -> None:
    bare, live = Feature("nothing", "nothing"), Feature("nothing", "nothing, live", is_live=True)
    kept, chain = Feature("result", "a result"), Feature("chain", "a step", is_live=True)

    rows = table(
        {
            bare: [{**_BARE, **_COUNTS}],
            kept: [{**_BARE, "worker_us": 45.0, "redis_us": 7.0, "scripts": 1.0, "commands": 7.0}],
            live: [{**_BARE, **_COUNTS, "worker_us": 30.0}],
            chain: [{**_BARE, "worker_us": 45.0, "scripts": 4.125, "commands": 40.0}],
        }
    )

    assert rows[2:] == [
        "| nothing | 9,000 | 10 | 20 | 0 | 0.00 | 0.00 |",
        "| a result | 9,000 | + 35 | + 0 | + 7 | 1.00 | 7.00 |",
        "| nothing, live | 9,000 | 30 | 20 | 0 | 0.00 | 0.00 |",
        "| a step | 9,000 | + 15 | + 0 | + 0 | 4.12 | 40.00 |",
    ]


def test_no_feature_appears_twice() -> None:
    assert len({(feature.mode, feature.is_live) for feature in FEATURES}) == len(FEATURES)
