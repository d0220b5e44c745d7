"""A worker as users run it: `python supervise.py OPTIONS`, until it is stopped.

Prints one line on standard output when it is ready.
"""

import asyncio
import logging
import sys
from typing import Literal

import msgspec

from taskmq.supervisor.config import SupervisorConfig
from taskmq.supervisor.supervisor import Supervisor
from taskmq.worker.child_protocol import ChildReady, ChildSpec
from taskmq.worker.host.event_loop import loop_factory


class Options(msgspec.Struct):
    order: ChildSpec
    supervision: SupervisorConfig = SupervisorConfig()
    loop: Literal["usual", "asyncio"] = "usual"


def _say(ready: ChildReady) -> None:
    sys.stdout.write(msgspec.json.encode(ready).decode() + "\n")
    sys.stdout.flush()


async def _main(options: Options) -> int:
    return await Supervisor(options.order, options.supervision, on_ready=_say).run()


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s supervisor: %(message)s", level=logging.INFO)
    given = msgspec.json.decode(sys.argv[1], type=Options)
    with asyncio.Runner(loop_factory=loop_factory() if given.loop == "usual" else asyncio.new_event_loop) as runner:
        sys.exit(runner.run(_main(given)))
