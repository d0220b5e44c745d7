"""Runs that give way, so that pools and classes have what they are guaranteed.

watch   once a second: who is owed, who leaves (`placement.evictions`) -> written down -> sent to the workers
"""

from taskmq.scheduler.preemption.watch import PreemptionWatch

__all__ = ["PreemptionWatch"]
