"""`python -m benchmarks.fairness`: simulate every claim, print the figures, and draw the plots of the pages.

Time is virtual: except for the cost of decisions, the figures are the same on every machine. Exits with 1 if a claim
is not met.
"""

import argparse
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from benchmarks.fairness import scenarios
from benchmarks.fairness.expected_starts import POLICIES, estimate_starts
from benchmarks.fairness.nodes import simulate_locality, simulate_nodes
from benchmarks.fairness.pictures import bars, lines
from benchmarks.fairness.simulation import Outcome
from benchmarks.fairness.traces import ORDERS, simulate_trace

_IMAGES = Path(__file__).parents[2] / "docs" / "images"
# Larger shares are drawn at this value.
_TOP = 3.0


class _Report:
    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        self.nodes = nodes
        self.failed: list[str] = []

    def row(self, what: str, figures: str) -> None:
        print(f"{what:42} {figures}", flush=True)

    def claim(self, text: str, *, holds: bool) -> None:
        print(f"{'ok' if holds else 'NOT MET':>8}: {text}", flush=True)
        if not holds:
            self.failed.append(text)

    def draw(self, name: str, picture: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{name}.svg").write_text(picture, encoding="utf-8")


def main() -> int:
    arguments = _arguments()
    report = _Report(arguments.images, arguments.nodes)
    parts = {
        "weights": _weights,
        "quiet": _quiet,
        "classes": _classes,
        "decisions": _decisions,
        "pools": _pools,
        "killed": _killed,
        "resources": _resources,
        "policies": _policies,
        "nodes": _nodes,
        "locality": _locality,
        "trace": _trace,
        "starts": _starts,
    }
    for name, part in parts.items():
        if not arguments.only or name in arguments.only:
            print(f"\n{name}")
            part(report)
    print(f"\n{len(report.failed)} claims not met")
    return 1 if report.failed else 0


def _nodes(report: _Report) -> None:
    few = simulate_nodes(4, 10_000, kills=20)
    report.row(
        "4 nodes, 10,000 mixed jobs, 20 kills", f"{few.utilisation:.1%} of the processors, {few.lost} run again"
    )
    many = simulate_nodes(10_000, 5_000)
    report.row("10,000 nodes, 5,000 jobs", f"{many.decisions:,.0f} placements a second of processor time")
    report.claim("no node is overcommitted", holds=not few.over and not many.over)
    report.claim("4 nodes are used to 85 % while jobs wait", holds=few.utilisation >= 0.85)


def _weights(report: _Report) -> None:
    outcomes = scenarios.flood()
    for name, outcome in outcomes.items():
        found = outcome.shares(60.0)
        index = scenarios.jain(found.get(tenant, 0.0) / weight for tenant, weight in scenarios.WEIGHTS.items())
        report.row(name, f"{_percent(found)}, Jain {index:.3f}, used {outcome.utilisation:.1%}")
    total = sum(scenarios.WEIGHTS.values())
    ours = outcomes["taskmq weighted"]
    shares = {tenant: share / (scenarios.WEIGHTS[tenant] / total) for tenant, share in ours.shares(60.0).items()}
    report.claim(
        "5:3:2: worker-seconds within 5 % of the weights", holds=all(abs(x - 1) <= 0.05 for x in shares.values())
    )
    report.claim("Jain >= 0.95", holds=scenarios.jain(shares.values()) >= 0.95)
    report.draw(
        "fairness-weights",
        lines(
            "Weights 5:3:2, run times of 0.1, 1 and 10 s, a flood of 100,000 of the longest",
            {name: _share_lines(outcome) for name, outcome in outcomes.items()},
            unit="part of the last 20 s",
            top=1.0,
        ),
    )


def _quiet(report: _Report) -> None:
    responses = scenarios.quiet()
    rows = {name: scenarios.percentile(found, 0.95) for name, found in responses.items()}
    for name, value in rows.items():
        report.row(name, f"p95 {value:.2f} s, p50 {scenarios.percentile(responses[name], 0.5):.2f} s")
    report.claim(
        "a quiet tenant's p95 response beside a flood of 100,000 is at most twice that alone",
        holds=rows["taskmq weighted"] <= 2 * rows["alone"],
    )
    report.draw(
        "fairness-quiet",
        bars("A quiet tenant's jobs of 1 s beside a flood: 95th percentile until the end", rows, unit="s"),
    )


def _classes(report: _Report) -> None:
    found = scenarios.strict_flood()
    for name, shares in found.items():
        report.row(name, _percent(shares))
    report.claim(
        "the lowest class keeps its tenth under a flood of the highest", holds=found["60/30/10"]["low"] >= 0.099
    )


def _decisions(report: _Report) -> None:
    few, many = scenarios.decisions(10), scenarios.decisions(10_000)
    again = scenarios.decisions(10)
    for name, found in {"10 tenants": few, "10,000 tenants": many, "10 tenants again": again}.items():
        report.row(name, f"{found.microseconds:.1f} us a decision, {found.bytes_per_tenant:,.0f} bytes a tenant")
    ratio = many.microseconds / max(min(few.microseconds, again.microseconds), 0.001)
    report.claim(f"10,000 tenants cost {ratio:.2f} times what 10 cost, at most twice", holds=ratio <= 2.0)


def _pools(report: _Report) -> None:
    outcome = scenarios.lent()
    counts = {
        name: [(at, float(running.get(name, 0))) for at, running in outcome.running]
        for name in ("owner", "guest", "capped")
    }
    most = max(value for _, value in counts["capped"])
    report.row("capped at 5 of 40", f"at most {most:.0f}; used {outcome.utilisation:.1%}")
    report.claim("the cap is never exceeded", holds=most <= 5)
    soon = max(value for at, value in counts["owner"] if 100 <= at <= 105)
    report.claim(f"5 s after its jobs arrive, the owner of 20 has {soon:.0f}", holds=soon >= 20)
    report.draw(
        "fairness-pools",
        lines(
            "A minimum of 20 slots is lent, and taken back as runs of 2 s end; a cap of 5 stays",
            {"jobs in flight": counts},
            unit="slots",
            top=40.0,
        ),
    )


def _killed(report: _Report) -> None:
    found = {minutes: scenarios.killed(every=minutes * 60.0).shares(60.0) for minutes in (1, 2)}
    total = sum(scenarios.WEIGHTS.values())
    worst = {
        minutes: max(abs(share / (scenarios.WEIGHTS[name] / total) - 1) for name, share in shares.items())
        for minutes, shares in found.items()
    }
    for minutes, shares in found.items():
        report.row(f"killed every {minutes} min", f"{_percent(shares)}, off by {worst[minutes]:.1%} at most")
    report.claim("weights hold within 10 % while the scheduler is killed every 2 minutes", holds=worst[2] <= 0.1)


def _resources(report: _Report) -> None:
    found = scenarios.paper()
    for name, shares in found.items():
        report.row(name, _percent(shares) + " dominant shares")
    ours = found["taskmq fair"]
    index = scenarios.jain(ours.values())
    report.claim(f"dominant shares are equal: Jain {index:.3f}", holds=index >= 0.95)


def _policies(report: _Report) -> None:
    outcomes = scenarios.policies()
    for name, outcome in outcomes.items():
        waits = {tenant: scenarios.percentile(outcome.waits[tenant], 0.95) for tenant in ("batch", "web", "urgent")}
        text = ", ".join(f"{tenant} {value:.1f} s" for tenant, value in waits.items())
        report.row(name, f"p95 wait: {text}; {_percent(outcome.shares())}")
        report.draw(
            f"policy-{name}",
            lines(
                f"policy={name}",
                {
                    "jobs running": {
                        tenant: [(at, float(running.get(tenant, 0))) for at, running in outcome.running]
                        for tenant in ("batch", "web", "urgent")
                    }
                },
                unit="slots",
                top=16.0,
            ),
        )


def _starts(report: _Report) -> None:
    for policy in POLICIES:
        found = estimate_starts(policy)
        report.row(
            policy,
            f"{found.asked:,} waiting jobs: {found.within:.1%} started as expected, {found.early / found.asked:.1%} "
            f"earlier; the range is {found.width:.1f} times the wait (median)",
        )
        report.claim(f"{policy}: nine of ten jobs start within their range", holds=found.within >= 0.9)


def _trace(report: _Report) -> None:
    size = {"nodes": report.nodes, "jobs": 100 * report.nodes, "tenants": report.nodes}
    report.row("size", ", ".join(f"{count:,} {name}" for name, count in size.items()))
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {}
    # A process for each, to measure its memory separately.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as processes:
        for name, found in zip(ORDERS, processes.map(partial(simulate_trace, **size), ORDERS), strict=True):
            report.row(
                name,
                f"{found.decided:,} started, {found.decisions:,.0f} decisions/s ({found.simulated:,.0f} with the "
                f"simulation), used {found.utilisation:.1%}, {found.megabytes:,.0f} MB",
            )
            report.row(
                "",
                f"{found.backlogged:,} tenants always wait: Jain {found.jain:.3f}, share error {found.error:.1%}; "
                f"none runs for {found.starved:,.0f} s at most; slowdown of tenants: median "
                f"{found.slowdowns[0]:.2f}, p95 {found.slowdowns[1]:.1f}",
            )
            ordered = sorted(found.shares)
            curves[name] = {
                "tenants, from the least share to the largest": [
                    (100 * index / max(len(ordered) - 1, 1), min(share, _TOP)) for index, share in enumerate(ordered)
                ]
            }
            if name == "taskmq fair":
                report.claim("tenants that always wait get equal dominant shares", holds=found.jain >= 0.95)
                report.claim("the cluster is used to 95 % while jobs wait", holds=found.utilisation >= 0.95)
    report.draw(
        "fairness-trace",
        lines(
            "A cluster like those of the traces: shares of the tenants that always wait",
            curves,
            unit="dominant share : mean one",
            top=_TOP,
            along="%",
        ),
    )


def _locality(report: _Report) -> None:
    anywhere, preferring = simulate_locality(patience=None), simulate_locality(patience=3.0)
    for name, found in {"no preference": anywhere, "a region, for 3 s": preferring}.items():
        report.row(name, f"{found.preferred:.1%} in it, mean wait {found.wait:.2f} s")
    report.claim("90 % of jobs run in their region at 80 % load", holds=preferring.preferred >= 0.9)
    report.claim("they wait at most 0.75 s longer for it", holds=preferring.wait - anywhere.wait <= 0.75)


def _percent(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.1%}" for name, share in shares.items())


def _share_lines(outcome: Outcome) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {tenant: [] for tenant in scenarios.WEIGHTS}
    for (_, before), (at, after) in zip(outcome.readings, outcome.readings[20:], strict=False):
        used = {tenant: after.get(tenant, 0.0) - before.get(tenant, 0.0) for tenant in found}
        total = sum(used.values()) or 1.0
        for tenant, seconds in used.items():
            found[tenant].append((at, seconds / total))
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fairness", description=__doc__)
    parser.add_argument("--only", nargs="*", help="run only these parts, such as: weights quiet decisions")
    parser.add_argument("--images", type=Path, default=_IMAGES, help="folder of the plots (default: docs/images)")
    parser.add_argument(
        "--nodes", type=int, default=10_000, help="nodes of the part `trace`; each adds a tenant and 100 jobs"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
