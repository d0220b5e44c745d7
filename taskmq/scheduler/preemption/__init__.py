"""Preemption of runs, so that pools and classes get what they are guaranteed.

watch   once a second: plans evictions (`placement.evictions`), records them, and sends them to the workers
"""

from taskmq.scheduler.preemption.watch import PreemptionWatch

__all__ = ["PreemptionWatch"]
