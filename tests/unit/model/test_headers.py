import pytest

from taskmq.model.headers import labels_of


@pytest.mark.parametrize(
    ("tenant", "priority", "labels"),
    [
        (None, None, {}),
        ("", 4, {}),
        ("north", None, {"x-taskmq-tenant": "north"}),
        (None, 9, {"x-taskmq-job-priority": 9}),
        ("north", 0, {"x-taskmq-tenant": "north", "x-taskmq-job-priority": 0}),
        (None, 10, {}),
        (None, -1, {}),
        ("n" * 1000, None, {"x-taskmq-tenant": "n" * 128}),
    ],
)
def test_only_fields_that_distinguish_jobs_are_labels(
    tenant: str | None, priority: int | None, labels: dict[str, str | int]
) -> None:
    assert labels_of(tenant, priority) == labels


def test_an_owner_is_a_label_of_at_most_128_characters() -> None:
    assert labels_of("north", 4, "ann") == {"x-taskmq-tenant": "north", "x-taskmq-owner": "ann"}
    assert labels_of(None, None, "a" * 255) == {"x-taskmq-owner": "a" * 128}
    assert labels_of(None, None, "") == {}
