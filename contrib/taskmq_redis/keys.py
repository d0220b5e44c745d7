"""Names of keys; each is also the channel on which its changes are published."""

import msgspec

from taskmq.contracts.stores import group_of, member_key, members_prefix


class Keys(msgspec.Struct, frozen=True):
    """Key names under one prefix; the text in braces decides the slot in a Redis Cluster."""

    prefix: str

    def result(self, job_id: str) -> str:
        return f"{self.prefix}:{{{job_id}}}:result"

    def ended_mark(self, job_id: str) -> str:
        return f"{self.prefix}:{{{job_id}}}:ended"

    def starts(self, job_id: str) -> str:
        return f"{self.prefix}:{{{job_id}}}:starts"

    def lease(self, key: str) -> str:
        if (group := group_of(key)) is not None:
            member = key.removeprefix(members_prefix(group))
            return f"{self.prefix}:{{members of {group}}}:{member}:lease"
        return f"{self.prefix}:{{{key}}}:lease"

    def members(self, group: str) -> str:
        """Return the key of the names of present and past members, in one slot with their leases."""
        return f"{self.prefix}:{{members of {group}}}:names"

    def member_of(self, group: str, lease: str) -> str:
        """Return the member whose lease has this key."""
        return lease.removeprefix(self.lease(member_key(group, ""))[: -len(":lease")]).removesuffix(":lease")

    def claim(self, key: str) -> str:
        return f"{self.prefix}:{{{key}}}:claim"

    def limit(self, key: str) -> tuple[str, str, str, str]:
        """Return the keys of a limit: its state, its line by instant and by order, and the holders of its permits."""
        name = f"{self.prefix}:{{limits}}:{key}"
        return f"{name}:facts", f"{name}:line", f"{name}:order", f"{name}:holds"

    def progress(self, job_id: str) -> str:
        return f"{self.prefix}:{{{job_id}}}:progress"

    def checkpoints(self, job_id: str) -> str:
        return f"{self.prefix}:{{{job_id}}}:checkpoints"

    @property
    def revocations(self) -> tuple[str, str, str]:
        """Keys of the revoked jobs by place, their expiries, and their reasons."""
        return (
            f"{self.prefix}:{{revoked}}:places",
            f"{self.prefix}:{{revoked}}:ends",
            f"{self.prefix}:{{revoked}}:reasons",
        )

    def schedule_record(self, slot: int, name: str) -> str:
        return f"{self.prefix}:{{schedules {slot}}}:{name}:record"

    def schedules(self, scope: str) -> tuple[str, str, str]:
        """Return the keys of the definitions, the names by last change, and the names without a definition."""
        return (
            f"{self.prefix}:{{schedules of {scope}}}:definitions",
            f"{self.prefix}:{{schedules of {scope}}}:places",
            f"{self.prefix}:{{schedules of {scope}}}:others",
        )

    @property
    def delays(self) -> tuple[str, str, str]:
        """Keys of the messages, their due times, and the leased ones."""
        return f"{self.prefix}:{{delay}}:messages", self.due, f"{self.prefix}:{{delay}}:taken"

    @property
    def due(self) -> str:
        return f"{self.prefix}:{{delay}}:due"
