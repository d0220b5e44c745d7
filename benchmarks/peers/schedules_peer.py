"""taskmq with `BENCH_DUE` schedules of one second. Run as a script it adds `COUNT` more that are not due for weeks.

    python schedules_peer.py COUNT

Each run of a due schedule appends its lateness of emission and of start, in ms, to the file `BENCH_LEDGER`.
"""

import asyncio
import json
import os
import sys
import time

from taskmq import Context, TaskMQ
from taskmq.schedules.triggers import cron

app = TaskMQ(os.environ["BENCH_URL"], state=os.environ["BENCH_REDIS"], name="bench", default_queue="bench")

_LEDGER = os.open(os.environ["BENCH_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.task(name="schedules.tick", result=False)
async def tick(context: Context) -> None:
    due = context.scheduled_for.timestamp() * 1000
    emitted = context._envelope.enqueued  # noqa: SLF001 - private, but this task measures the beat
    os.write(_LEDGER, f"{emitted - due:.0f} {time.time() * 1000 - due:.0f}\n".encode())


@app.task(name="schedules.rare", result=False)
async def rare(number: int) -> None: ...


for _number in range(int(os.environ.get("BENCH_DUE", "0"))):
    app.every("1s", name=f"due {_number}")(tick)


async def _add(count: int) -> None:
    async with app:
        began, cpu = time.perf_counter(), time.process_time()
        for first in range(0, count, 500):
            last = min(first + 500, count)
            # Spread over the minutes of a year, none of them soon.
            month = (time.gmtime().tm_mon + 5) % 12 + 1
            await asyncio.gather(
                *(
                    app.schedules.aadd(
                        f"rare {each}",
                        rare,
                        cron(f"{each % 60} {each // 60 % 24} {each // 1440 % 28 + 1} {month} *"),
                        args=(each,),
                    )
                    for each in range(first, last)
                )
            )
        print(json.dumps({"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "count": count}))


if __name__ == "__main__":
    asyncio.run(_add(int(sys.argv[1])))
