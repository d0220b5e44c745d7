import pytest

pytest.register_assert_rewrite(
    "taskmq.testing.broker_suite",
    "taskmq.testing.coordinator_suite",
    "taskmq.testing.job_store_suite",
    "taskmq.testing.runner",
    "taskmq.testing.state_suite",
)
