"""Rules, alerts, silences and notices, in a job store."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from taskmq.model.history.alerts import Alert, AlertChange, AlertRule, Silence
from taskmq.model.identity import AuditEntry

__all__ = ["AlertNotice", "AlertStore", "KeptRule", "NoticeTurn"]


class KeptRule(msgspec.Struct, frozen=True):
    """A rule and its version, which grows by 1 with each change."""

    rule: AlertRule
    version: int


class AlertNotice(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be sent over one channel.

    Attributes:
        id: follows from what it says and to whom: the same changes never make a second one.
        next: when to send it, ms since the epoch; None: it was sent, or given up.
        tries: how often sending it has begun.
    """

    id: str
    channel: str
    rule: AlertRule
    changes: list[AlertChange]
    at: int
    next: int | None = None
    tries: int = 0


class NoticeTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The tenant whose turn it is to have a notice sent.

    Attributes:
        after: the tenants behind this one, by name, come first, and then those up to it.
        tenants: those that get no notice now.
        hosts: tenants and hosts of their channels (`channel_host`) to which no notice goes now.
    """

    after: str = ""
    tenants: frozenset[str] = frozenset()
    hosts: frozenset[tuple[str, str]] = frozenset()


_ANY_TURN: Final = NoticeTurn()


class AlertStore(Protocol):
    """What is known of alerts.

    Every method raises `StoreUnavailable` and `StoreMismatch` as those of `JobStore` do.
    """

    async def rules(self, tenant: str | None = None) -> list[KeptRule]:
        """The rules of a tenant, "" for those of the instance, None for all; by tenant and name."""
        ...

    async def put_rule(
        self, rule: AlertRule, *, version: int | None = None, audit: AuditEntry | None = None
    ) -> int | None:
        """Make the rule, or put it in the place of the one of its tenant and name; its version.

        Args:
            version: that it must have; 0: it must not be there; None: whichever it has.
            audit: an entry of the audit, which the same transaction writes.

        Returns:
            None, and nothing is changed, where it has another version.

        Raises:
            LimitReached: see `check_limits`; the same transaction counts.
        """
        ...

    async def remove_rule(self, tenant: str, name: str, *, audit: AuditEntry | None = None) -> bool:
        """Remove the rule and its alerts; whether it was there."""
        ...

    async def alerts(self, tenant: str | None = None) -> list[Alert]:
        """What is known of a tenant's alerts, "" for those of the instance, None for all; by rule and subject."""
        ...

    async def silences(self, *, ended: bool = False) -> list[Silence]:
        """The silences that have not ended by the store's clock, or all; by their beginning."""
        ...

    async def add_silence(self, silence: Silence, *, audit: AuditEntry | None = None) -> None:
        """Keep a silence; one with the same id is replaced.

        Raises:
            LimitReached: see `check_silence`; the same transaction counts those that have not ended.
        """
        ...

    async def remove_silence(self, silence_id: str, *, audit: AuditEntry | None = None) -> bool:
        """End it; whether it was there."""
        ...

    async def commit(self, alerts: Sequence[Alert], notices: Sequence[AlertNotice]) -> bool:
        """Write what a look came to: all of it in one transaction, or nothing and False.

        There may be ten thousand alerts, as many as a rule has tasks: the transaction keeps other schedulers from
        writing, so it takes far fewer statements than that, each of a bounded size.

        Nothing where an alert has another version than it had when it was read: another scheduler has looked
        meanwhile. A notice that is there already stays as it is.
        """
        ...

    async def take_notice(self, *, lease_ms: int, turn: NoticeTurn = _ANY_TURN) -> AlertNotice | None:
        """Take the first due notice of the tenant whose turn it is, under a lease; None where there is none."""
        ...

    async def settle_notice(self, notice: AlertNotice, *, retry_at: int | None) -> None:
        """It was sent, or is given up; or it is to be sent again at an instant (ms)."""
        ...

    async def notices(self, tenant: str | None = None, *, limit: int = 50) -> list[AlertNotice]:
        """The last notices of a tenant's rules, "" for the instance's, None for all; the latest first."""
        ...

    async def forget(self, *, before: int) -> None:
        """Forget silences that ended, notices that were settled and alerts that were resolved before an instant."""
        ...
