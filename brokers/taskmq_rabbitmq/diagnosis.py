"""What `taskmq doctor` says about a RabbitMQ node. Pure: facts in, findings out."""

from typing import Literal

__all__ = ["Finding", "version_findings"]

Finding = tuple[Literal["ok", "warning", "problem"], str, str, str]

_OLDEST = (3, 10)


def version_findings(version: tuple[int, ...] | None) -> list[Finding]:
    """What the node's version means for taskmq."""
    if version is None:
        return [("warning", "rabbitmq", "the node does not say its version", "taskmq is tested on 3.10 to 4.3")]
    text = ".".join(map(str, version))
    if version < _OLDEST:
        return [
            (
                "problem",
                "rabbitmq",
                f"version {text}: dead-lettering cannot be made safe before 3.10",
                "upgrade, through 3.13, to 4.x",
            )
        ]
    if version < (4,):
        return [
            (
                "warning",
                "rabbitmq",
                f"version {text}: the 3.x series gets no more fixes",
                "upgrade, through 3.13, to 4.x; nothing changes for taskmq",
            )
        ]
    return [("ok", "rabbitmq", f"version {text}", "")]
