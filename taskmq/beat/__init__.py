"""Beat: emits the recurring tasks of an app, from any number of replicas.

No replica leads. Each computes the same nominal instants, and all change one record per schedule by compare-and-set
(`taskmq.schedules.record`):

    due --> turn: claim, in the record --> publish, under the occurrence's own job id --> confirmed: claim removed
              ^                                                                |
              +---- by a beat that sees its lease end    <--- its owner died --+

Each beat sees the decisions of the others, and does not repeat them. So an instant is claimed once, or counted as
missed, and a claimed one is published until the broker has confirmed it. It may be published twice, if a beat dies
between publish and record, or was frozen; both messages have the same id and idempotency key, so that workers run one
of them.

`planner` and `turn` decide, and are pure. `record_cache` changes the records of many schedules in few calls.
`server_clock` is the common time. `emitter` builds the messages, and `beat` waits, does the rounds, and owns all
tasks: one for the loop, one that checks for changes once a second, and at most eight rounds of 250 schedules each.

If the state does not answer nothing is claimed, so nothing is emitted (fails closed); occurrences that become due
meanwhile are late, or missed, once it answers again. If the broker does not answer, claims stay open, at most 32 of
each schedule.
"""

from taskmq.beat.beat import Beat

__all__ = ["Beat"]
