import pytest

from taskmq_rabbitmq.diagnosis import version_findings


@pytest.mark.parametrize(
    ("version", "level"),
    [
        (None, "warning"),
        ((3, 8, 9), "problem"),
        ((3, 9, 29), "problem"),
        ((3, 10, 8), "warning"),
        ((3, 13, 7), "warning"),
        ((4, 0, 5), "ok"),
        ((4, 3, 6), "ok"),
        ((5,), "ok"),
    ],
)
def test_each_version_has_its_verdict_and_each_bad_one_its_remedy(
    version: tuple[int, ...] | None, level: str
) -> None:
    ((found, about, text, remedy),) = version_findings(version)

    assert found == level
    assert about == "rabbitmq"
    assert bool(remedy) == (level != "ok")
    assert version is None or ".".join(map(str, version)) in text
