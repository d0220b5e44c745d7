"""A worker as people run it: `python supervise.py OPTIONS`, until it is stopped.

Says on standard output, in one line, that it is ready.
"""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Literal

import msgspec

from taskmq.worker.child import Order, Ready, loop_factory
from taskmq.worker.supervisor import Supervisor


class Options(msgspec.Struct):
    order: Order
    processes: int = 1
    watch: str = ""
    loop: Literal["usual", "asyncio"] = "usual"


def _say(ready: Ready) -> None:
    sys.stdout.write(msgspec.json.encode(ready).decode() + "\n")
    sys.stdout.flush()


async def _main(options: Options) -> int:
    watch = (Path(options.watch),) if options.watch else ()
    return await Supervisor(options.order, processes=options.processes, on_ready=_say, watch=watch).run()


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s supervisor: %(message)s")
    given = msgspec.json.decode(sys.argv[1], type=Options)
    with asyncio.Runner(loop_factory=loop_factory() if given.loop == "usual" else asyncio.new_event_loop) as runner:
        sys.exit(runner.run(_main(given)))
