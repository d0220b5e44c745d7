"""Tests of the versions of the app that workers announced."""

from taskmq.model.telemetry.app_versions import AppVersion, WorkerVersion
from taskmq.testing.job_store_suite.history.kit import HistoryCase
from taskmq.testing.runner import case


class VersionCases(HistoryCase):
    """Every guarantee of `VersionStore`."""

    @case
    async def test_a_version_is_kept_with_its_first_and_last_report(self) -> None:
        versions, other = self.history().versions, self.history().versions
        await versions.report([("a", "1"), ("b", "1"), ("☂", "2")], at=1_000)

        await other.report([("b", "1"), ("a", "3")], at=9_000)
        await other.report([("b", "1")], at=5_000)
        await other.report([], at=7_000)

        assert await versions.versions(since=0, until=10_000) == [
            AppVersion(version="1", first=1_000, last=9_000),
            AppVersion(version="2", first=1_000, last=1_000),
            AppVersion(version="3", first=9_000, last=9_000),
        ]

    @case
    async def test_versions_are_found_by_the_time_in_which_they_ran(self) -> None:
        versions = self.history().versions
        await versions.report([("a", "1")], at=1_000)
        await versions.report([("a", "1")], at=2_000)
        await versions.report([("a", "2")], at=5_000)

        for since, until, limit, expected in (
            (2_000, 5_000, 9, ["1"]),
            (2_001, 5_001, 9, ["2"]),
            (5_001, 9_000, 9, []),
            (0, 1_000, 9, []),
            (0, 9_000, 1, ["2"]),
        ):
            found = await versions.versions(since=since, until=until, limit=limit)
            assert [one.version for one in found] == expected, (since, until, limit)

    @case
    async def test_the_versions_of_a_worker_are_in_the_order_of_their_reports(self) -> None:
        versions = self.history().versions
        await versions.report([("a", "2"), ("b", "2")], at=1_000)
        await versions.report([("a", "1")], at=2_000)

        assert await versions.of_workers(["a", "unknown", "nul\0"]) == [
            WorkerVersion(worker="a", version="2", first=1_000, last=1_000),
            WorkerVersion(worker="a", version="1", first=2_000, last=2_000),
        ]
        assert await versions.of_workers([]) == []

    @case
    async def test_versions_that_no_worker_runs_any_more_are_deleted_in_parts(self) -> None:
        versions = self.history().versions
        await versions.report([(f"w{number}", "1") for number in range(150)], at=1_000)
        await versions.report([("w7", "1"), ("w8", "2")], at=2_000)

        deleted = [await versions.forget(before=2_000, limit=100) for _ in range(3)]

        assert deleted == [100, 49, 0]
        assert [one.version for one in await versions.versions(since=0, until=9_000)] == ["1", "2"]
