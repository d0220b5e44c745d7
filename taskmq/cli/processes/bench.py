"""`taskmq bench`."""

import asyncio
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from taskmq.cli.globals import current_globals, open_app
from taskmq.cli.output import announce, print_record
from taskmq.demo.bench import BenchPlan, Latency, bench
from taskmq.model.units import parse_duration

Count = Annotated[int, Parameter(validator=Number(gte=1))]


def bench_installation(
    *,
    jobs: Count = 5_000,
    concurrency: Annotated[int, Parameter(name=["--concurrency", "-c"], validator=Number(gte=1))] = 32,
    rate: Count = 100,
    time: str = "5s",
) -> None:
    """Measure the broker, and the state if there is one: throughput and latency of no-op jobs.

    Uses its own queue, deleted afterwards, and one worker in this process. The app's queues are not touched.

    Args:
        jobs: Number of jobs to send and then run, as fast as possible.
        concurrency: Slots of the worker.
        rate: Jobs per second while measuring latency.
        time: How long to measure latency, such as 10s.
    """
    target = open_app()
    seconds = parse_duration(time, what="--time").total_seconds()
    plan = BenchPlan(jobs=jobs, concurrency=concurrency, rate=rate, seconds=seconds)
    report = asyncio.run(bench(target.sessions.url, target.sessions.state_url, plan, say=announce))
    if current_globals().output != "table":
        print_record(
            {
                "broker": report.broker,
                "state": report.state,
                "jobs": plan.jobs,
                "concurrency": plan.concurrency,
                "rate": plan.rate,
                "sent_per_second": report.sent,
                "run_per_second": report.run,
                "start_ms": report.start,
                "state_ms": report.state_round_trip,
            }
        )
        return
    trip = report.state_round_trip
    print_record(
        {
            "broker": report.broker,
            "sent": f"{report.sent:,.0f} jobs/s, confirmed, one process",
            "run": f"{report.run:,.0f} jobs/s, one worker process, {plan.concurrency} slots",
            "send to start": f"{_text(report.start)} at {plan.rate} jobs/s",
            "state": f"{report.state}: {_text(trip)} per request" if trip else "none",
        }
    )


def _text(latency: Latency) -> str:
    return f"p50 {latency.p50:.2f} ms, p99 {latency.p99:.2f} ms"
