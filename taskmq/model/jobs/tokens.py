"""Tokens of dispatches: the number of the dispatch, above 32 random bits. Pure.

A store has given the tokens of all numbers up to that of the job's row, and one token of each number. So a report
with another token tells whether it is of an earlier dispatch, which has been superseded, or of one that this store
knows nothing of: it was restored from a backup since, or a standby that was behind has taken over. Or the token is
made up by a forger who may publish, and then the report has no proof that a key of the store has made.
"""

from typing import Final

from taskmq.model.jobs.proofs import ReportKeys
from taskmq.model.jobs.reports import Report, after_report
from taskmq.model.states import TERMINAL

__all__ = ["ends_forgotten_dispatch", "is_forgotten", "is_invented", "next_token"]

_CHANCE_BITS: Final = 32
# A token has 53 bits, so that every language can read it as a number.
_NUMBERS: Final = 1 << 21


def next_token(token: int, chance: int) -> int:
    """The token of a job's next dispatch.

    Args:
        token: of its last one; 0 before the first.
        chance: 32 random bits.
    """
    return (_number(token) + 1) % _NUMBERS << _CHANCE_BITS | chance


def is_forgotten(reported: int, token: int) -> bool:
    """Whether a reported token is of a dispatch that the store of a job with this token has no memory of."""
    return _number(reported) > _number(token) or (_number(reported) == _number(token) and reported != token)


def is_invented(report: Report, token: int, keys: ReportKeys, came_by: str) -> bool:
    """Whether the report is of a dispatch that the store has no memory of, and cannot prove that there was one.

    Args:
        token: of the job's last dispatch that the store knows of.
        keys: the store's.
        came_by: the queue by which the report came.
    """
    return is_forgotten(report.token, token) and not keys.is_genuine(report.proof, report.id, report.token, came_by)


def ends_forgotten_dispatch(report: Report, token: int, keys: ReportKeys, came_by: str) -> bool:
    """Whether a report that finds its job waiting, or under way with this token, ends it even so.

    An end of a later dispatch than the store knows of does, where its proof says that there was such a one: the job
    was done. What was begun, or is to run again, does not: the job waits in the store, and is dispatched. Nor does an
    end that comes when the store has dispatched the job again: of two runs of one number the one counts that the
    store knows. An end without a proof does nothing at all: a forger may have published it.

    Args: as of `is_invented`.
    """
    is_end = after_report(report.kind, cancel_requested=False) in TERMINAL
    is_later = _number(report.token) > _number(token)
    return is_end and is_later and not is_invented(report, token, keys, came_by)


def _number(token: int) -> int:
    return token >> _CHANCE_BITS
