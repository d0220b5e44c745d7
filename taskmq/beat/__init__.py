"""Beat: emits the recurring tasks of an app, from any number of replicas.

No replica leads. Each computes the same nominal instants, and all change one record per schedule by compare-and-set
(`taskmq.schedules.record`):

    due --> turn: claim, in the record --> publish, under the occurrence's own job id --> confirmed: out of the claims
              ^                                                                |
              +---- by a beat that sees its lease end    <--- its owner died --+

Each beat sees what another one has decided, and does not decide it again. So an instant is claimed once, or
counted as missed, and what is claimed is published until the broker has confirmed it. It may be published twice, if a
beat dies between publish and record, or was frozen; both messages have the same id and idempotency key, so
that workers run one of them.

`planner` and `turn` decide, and are pure. `record_cache` changes the records of many schedules by few calls.
`server_clock` is the time that all agree on. `emitter` makes the messages, and `beat` waits, does the rounds, and
owns all tasks: one for the loop, one that looks for changes once a second, and at most eight rounds of 250 schedules
each.

Where the state does not answer nothing is claimed, so nothing is emitted (fails closed); what has become due
meanwhile is late, or missed, once it answers again. Where the broker does not answer, claims stay open, at most 32 of
each schedule.
"""

from taskmq.beat.beat import Beat

__all__ = ["Beat"]
