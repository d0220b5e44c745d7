"""Beat: emits the recurring tasks of an app, from as many replicas as one likes.

No replica leads. Each computes the same nominal instants, and for each occurrence (schedule and instant)
the first to claim it in the shared state publishes it, under a job id that follows from the occurrence. A
replica that loses the claim looks once more when the claim's lease is over: if the winner died before its
message was confirmed, the claim is free again and the occurrence is published after all, under the same job
id. What was due while no beat ran is not made up for; a beat that runs again after a pause of its machine emits the
most recent of what it has slept through, once.
"""

from taskmq.beat.beat import Beat

__all__ = ["Beat"]
