"""The names of keys; each is also the channel on which its change is told."""

from dataclasses import dataclass

__all__ = ["Keys"]


@dataclass(frozen=True, slots=True)
class Keys:
    """Names under one prefix; what stands in braces decides about the slot in a Redis Cluster."""

    prefix: str

    def result(self, job_id: str) -> str:
        return f"{self.prefix}:{{{job_id}}}:result"

    def occurrence(self, occurrence: str) -> str:
        return f"{self.prefix}:{{{occurrence}}}:occurrence"

    def starts(self, job_id: str) -> str:
        return f"{self.prefix}:{{{job_id}}}:starts"

    def lease(self, key: str) -> str:
        return f"{self.prefix}:{{{key}}}:lease"

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

    @property
    def delays(self) -> tuple[str, str, str]:
        """Of the messages, their due instants, and those that are taken."""
        return f"{self.prefix}:{{delay}}:messages", self.due, f"{self.prefix}:{{delay}}:taken"

    @property
    def due(self) -> str:
        return f"{self.prefix}:{{delay}}:due"
