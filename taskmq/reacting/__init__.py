"""Reactions as an app has them: which task is called with what, and how what has happened becomes a job.

    a worker, as a job ends --+
    a beat: files, messages --+--> Desk.deliver -- one condition is enough ----------> the job, published
                                               +-- several, time or debounce --> Standing, in the state --> a beat

Whoever sees something keeps hold of it (the delivery of the job or message, the claim of the file) until `deliver`
has returned, so it is delivered once at least. The job's id follows from what has happened, so that workers run one
of several. `taskmq.reaction` decides, and is pure.
"""

from taskmq.reacting.desk import Cause, Desk, Refused, job_id_of
from taskmq.reacting.reactions import Reaction, Reactions, ReactionStatus
from taskmq.reacting.standings import change_standing, look_at_standings, standing_name

__all__ = [
    "Cause",
    "Desk",
    "Reaction",
    "ReactionStatus",
    "Reactions",
    "Refused",
    "change_standing",
    "job_id_of",
    "look_at_standings",
    "standing_name",
]
