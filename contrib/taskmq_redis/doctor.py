"""Findings about a Redis that stores state. Pure."""

from collections.abc import Mapping

from taskmq.contracts.finding import Finding


def parse_info(text: str) -> dict[str, str]:
    """Parse the answer of `INFO` into fields."""
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line and not line.startswith("#"))


def diagnose(info: Mapping[str, str]) -> list[Finding]:
    """Return findings: level, subject, what was found, and the remedy."""
    version = info.get("redis_version", "?")
    return [Finding("ok", "redis", f"version {version}"), _role(info), _eviction(info), _durability(info)]


def _role(info: Mapping[str, str]) -> Finding:
    role = info.get("role", "?")
    if role == "master":
        return Finding("ok", "role", "accepts writes")
    return Finding("problem", "role", f"is a {role}: it rejects writes", "name the primary in the state's URL")


def _eviction(info: Mapping[str, str]) -> Finding:
    policy = info.get("maxmemory_policy", "?")
    if policy.startswith("allkeys"):
        found = f"maxmemory-policy {policy}: delayed jobs, results and claims may be dropped at any time"
        return Finding("problem", "eviction", found, "set maxmemory-policy noeviction")
    if policy.startswith("volatile"):
        found = f"maxmemory-policy {policy}: results and claims may be dropped before their time"
        return Finding("warning", "eviction", found, "set maxmemory-policy noeviction")
    return Finding("ok", "eviction", f"maxmemory-policy {policy}")


def _durability(info: Mapping[str, str]) -> Finding:
    if info.get("aof_enabled") == "1":
        return Finding("ok", "durability", "appendonly is on")
    found = "appendonly is off: a restart loses the latest writes, including delayed jobs (delay='state')"
    return Finding("warning", "durability", found, "set appendonly yes")
