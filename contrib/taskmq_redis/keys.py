"""The names of keys; each is also the channel on which its change is published."""

import msgspec

from taskmq.contracts.stores import group_of, member_key, members_prefix
from taskmq.model.keys import split_tenant_key

__all__ = ["Keys"]


class Keys(msgspec.Struct, frozen=True):
    """Names under one prefix; what stands in braces decides about the slot in a Redis Cluster."""

    prefix: str

    def result(self, job_id: str) -> str:
        return f"{self.prefix}:{{{job_id}}}:result"

    def ended(self, job_id: str) -> str:
        return f"{self.prefix}:{{{job_id}}}:ended"

    def starts(self, job_id: str) -> str:
        return f"{self.prefix}:{{{job_id}}}:starts"

    def lease(self, key: str) -> str:
        if (group := group_of(key)) is not None:
            member = key.removeprefix(members_prefix(group))
            return f"{self.prefix}:{{members of {group}}}:{member}:lease"
        return f"{self.prefix}:{{{key}}}:lease"

    def members(self, group: str) -> str:
        """The names of those who are or were members; in one slot with their leases."""
        return f"{self.prefix}:{{members of {group}}}:names"

    def member_of(self, group: str, lease: str) -> str:
        """The member whose lease has this name."""
        return lease.removeprefix(self.lease(member_key(group, ""))[: -len(":lease")]).removesuffix(":lease")

    def flow(self, flow_id: str) -> str:
        """With it the names of all that belong to the flow begin."""
        return f"{self.prefix}:{{{flow_id}}}:flow"

    @property
    def flow_places(self) -> str:
        """Of all flows, when they were made."""
        return f"{self.prefix}:{{flows}}:places"

    def flow_places_of(self, tenant: str) -> str:
        """Of a tenant's flows, "" those without a tenant, when they were made."""
        return f"{self.prefix}:{{flows}}:of:{tenant}"

    def flow_lists(self, flow_id: str) -> tuple[str, str, str]:
        """Where a flow is listed: among all, among its tenant's, and by until when it is known at least."""
        tenant, _ = split_tenant_key(flow_id)
        return self.flow_places, self.flow_places_of(tenant), f"{self.prefix}:{{flows}}:ends"

    def claim(self, key: str) -> str:
        return f"{self.prefix}:{{{key}}}:claim"

    def limit(self, key: str) -> tuple[str, str, str, str]:
        """Of a limit, its facts, who waits for it by instants and by order, and who has its places."""
        name = f"{self.prefix}:{{limits}}:{key}"
        return f"{name}:facts", f"{name}:line", f"{name}:order", f"{name}:holds"

    def progress(self, job_id: str) -> str:
        return f"{self.prefix}:{{{job_id}}}:progress"

    def checkpoints(self, job_id: str) -> str:
        return f"{self.prefix}:{{{job_id}}}:checkpoints"

    @property
    def revocations(self) -> tuple[str, str, str]:
        """Of the jobs by place, the ends of their times, and the reasons."""
        return (
            f"{self.prefix}:{{revoked}}:places",
            f"{self.prefix}:{{revoked}}:ends",
            f"{self.prefix}:{{revoked}}:reasons",
        )

    def schedule_record(self, slot: int, name: str) -> str:
        return f"{self.prefix}:{{schedules {slot}}}:{name}:record"

    def schedules(self, scope: str) -> tuple[str, str, str]:
        """Of the definitions, the names by their last change, and those that have no definition."""
        return (
            f"{self.prefix}:{{schedules of {scope}}}:definitions",
            f"{self.prefix}:{{schedules of {scope}}}:places",
            f"{self.prefix}:{{schedules of {scope}}}:others",
        )

    @property
    def delays(self) -> tuple[str, str, str]:
        """Of the messages, their due instants, and those that are taken."""
        return f"{self.prefix}:{{delay}}:messages", self.due, f"{self.prefix}:{{delay}}:taken"

    @property
    def due(self) -> str:
        return f"{self.prefix}:{{delay}}:due"
