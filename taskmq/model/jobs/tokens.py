"""Tokens of dispatches: the number of the dispatch, above 32 random bits. Pure.

A store issued exactly one token for each number up to that of the job's row. So a report with another token is either
of an earlier, superseded dispatch or of a dispatch that this store does not know. The latter occurs after a restore
from a backup or a failover to a standby that was behind. Or a client that may publish forged the token; then the
report has no genuine proof.
"""

from typing import Final

from taskmq.model.jobs.proofs import ReportKeys
from taskmq.model.jobs.reports import ENDS, Report

_CHANCE_BITS: Final = 32
# A token has 53 bits, so that every language can read it as a number.
_NUMBERS: Final = 1 << 21


def next_token(token: int, chance: int) -> int:
    """Return the token of a job's next dispatch.

    Args:
        token: of its last dispatch; 0 before the first.
        chance: 32 random bits.
    """
    return (_number(token) + 1) % _NUMBERS << _CHANCE_BITS | chance


def is_forgotten(reported: int, token: int) -> bool:
    """Return whether a reported token is of a dispatch that the store with this present token does not know."""
    return _number(reported) > _number(token) or (_number(reported) == _number(token) and reported != token)


def is_invented(report: Report, token: int, keys: ReportKeys, came_by: str) -> bool:
    """Return whether a report is of a dispatch that the store does not know, and has no genuine proof.

    Args:
        token: of the job's last dispatch that the store knows.
        keys: the store's.
        came_by: the queue from which the report came.
    """
    return is_forgotten(report.token, token) and not keys.is_genuine(report.proof, report.id, report.token, came_by)


def ends_forgotten_dispatch(report: Report, token: int, keys: ReportKeys, came_by: str) -> bool:
    """Return whether a report of an unknown dispatch ends its job, which is waiting or in flight with this token.

    An end of a later dispatch than the store knows does so if its proof is genuine: the job was done. A start or a
    retry does not: the job waits in the store and is dispatched. Nor does an end that arrives after the store
    dispatched the job again: of two runs with one number, the one that the store knows counts. An end without a proof
    has no effect, because anyone who may publish could have sent it.

    Args: as for `is_invented`.
    """
    is_later = _number(report.token) > _number(token)
    return report.kind in ENDS and is_later and not is_invented(report, token, keys, came_by)


def _number(token: int) -> int:
    return token >> _CHANCE_BITS
