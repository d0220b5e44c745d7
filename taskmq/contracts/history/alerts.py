"""Rules, alerts, silences and notices, in a job store."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from taskmq.model.history.alerts import Alert, AlertChange, AlertRule, Silence
from taskmq.model.identity import AuditEntry


class KeptRule(msgspec.Struct, frozen=True):
    """A rule and its version, which increases by 1 with each change."""

    rule: AlertRule
    version: int


class AlertNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A notice to send over one channel.

    Attributes:
        id: derived from its content and channel, so the same changes never create a second one.
        next: when to send it, ms since the epoch; None: it was sent, or abandoned.
        tries: number of attempts to send it.
    """

    id: str
    channel: str
    rule: AlertRule
    changes: list[AlertChange]
    at: int
    next: int | None = None
    tries: int = 0


class NoticeTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The next turn in sending notices of the tenants.

    Attributes:
        after: the tenants after this one, by name, come first, then those up to it.
        tenants: tenants without a turn now.
        hosts: tenants and hosts of their channels (`channel_host`) without a turn now.
    """

    after: str = ""
    tenants: frozenset[str] = frozenset()
    hosts: frozenset[tuple[str, str]] = frozenset()


_ANY_TURN: Final = NoticeTurn()


class AlertStore(Protocol):
    """Alert rules, alerts, silences and notices.

    Every method raises `StoreUnavailable` and `StoreMismatch` like those of `JobStore`.
    """

    async def rules(self, tenant: str | None = None) -> list[KeptRule]:
        """Return the rules of a tenant, "" for the instance's, None for all, by tenant and name."""
        ...

    async def put_rule(
        self, rule: AlertRule, *, version: int | None = None, audit: AuditEntry | None = None
    ) -> int | None:
        """Create the rule, or replace the one of its tenant and name; return its version.

        Args:
            version: version that it must have; 0: it must not exist; None: any.
            audit: an audit entry that the same transaction writes.

        Returns:
                    None, and nothing is changed, if it has another version.

        Raises:
            LimitReached: see `check_limits`; the same transaction counts.
        """
        ...

    async def remove_rule(self, tenant: str, name: str, *, audit: AuditEntry | None = None) -> bool:
        """Remove the rule and its alerts; return whether it existed."""
        ...

    async def alerts(self, tenant: str | None = None) -> list[Alert]:
        """Return the alerts of a tenant, "" for the instance's, None for all, by rule and subject."""
        ...

    async def silences(self, *, ended: bool = False) -> list[Silence]:
        """Return the silences that have not ended by the store's clock, or all of them, by their beginning."""
        ...

    async def add_silence(self, silence: Silence, *, audit: AuditEntry | None = None) -> None:
        """Store a silence, and replace one with the same id.

        Raises:
            LimitReached: see `check_silence`; the same transaction counts those that have not ended.
        """
        ...

    async def remove_silence(self, silence_id: str, *, audit: AuditEntry | None = None) -> bool:
        """End a silence; return whether it existed."""
        ...

    async def commit(self, alerts: Sequence[Alert], notices: Sequence[AlertNotice]) -> bool:
        """Write the result of an evaluation in one transaction; return False if nothing was written.

        There may be ten thousand alerts, one for each task of a rule. The transaction blocks the writes of other
        schedulers, so it uses far fewer statements than that, each of bounded size.

        Nothing is written if the version of an alert has changed since it was read: another scheduler evaluated the
        rule meanwhile. An existing notice stays unchanged.
        """
        ...

    async def take_notice(self, *, lease_ms: int, turn: NoticeTurn = _ANY_TURN) -> AlertNotice | None:
        """Lease the first due notice of the tenant whose turn it is; None if there is none."""
        ...

    async def settle_notice(self, notice: AlertNotice, *, retry_at: int | None) -> None:
        """Mark a notice as sent or abandoned, or schedule it again for an instant (ms)."""
        ...

    async def notices(self, tenant: str | None = None, *, limit: int = 50) -> list[AlertNotice]:
        """Return the last notices of a tenant's rules, "" for the instance's, None for all, the latest first."""
        ...

    async def forget(self, *, before: int) -> None:
        """Delete silences that ended, notices that were settled and alerts that were resolved before an instant."""
        ...
