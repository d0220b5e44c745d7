"""Latency and cost of saved steps that do nothing: of one run, and of many runs at once."""

from typing import Final

from benchmarks.job_store.figures import Figures, spread
from benchmarks.job_store.stage import Stage, us_a_job

_STEPS: Final = 200
_MANY: Final = 20
_TASK: Final = f"""
from taskmq import Context

_steps = os.open("steps", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


async def _nothing() -> None: ...


@app.task(name="steps", queue="work", retry=None)
async def steps(context: Context, number: int) -> None:
    await context.resume()
    for step in range({_STEPS}):
        began = time.perf_counter_ns()
        await context.astep(str(step), _nothing)
        os.write(_steps, b"%d\\n" % (time.perf_counter_ns() - began))
"""


async def saved_steps(stage: Stage) -> Figures:
    """Run jobs of 200 steps; return the seconds of a step, and each part's processor time per step."""
    with (stage.folder / "bench.py").open("a", encoding="utf-8") as module:
        module.write(_TASK)
    stage.start_both()
    await stage.warm()
    found: Figures = {}
    for name, jobs in (("alone", 1), (f"{_MANY} at once", _MANY)):
        (stage.folder / "steps").write_bytes(b"")
        before = stage.cpu()
        sent = await stage.app.jobs.asubmit_many("steps", [(number,) for number in range(jobs)])
        await stage.until_ended([job.id for job in sent])
        cost = us_a_job(before, stage.cpu(), jobs * _STEPS)
        seconds = [int(line) / 1e9 for line in (stage.folder / "steps").read_text(encoding="ascii").split()]
        found |= {f"{name}, {figure}": each for figure, each in spread(seconds).items()}
        found |= {f"{name}, {part.replace('a job', 'a step')}": each for part, each in cost.items()}
    return found
