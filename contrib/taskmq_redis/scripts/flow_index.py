"""The Lua scripts of the list of workflows.

KEYS: when each flow was made, the same of those of its tenant, and until when each is known at least. They are in a
slot of their own, so they cannot change in one step with a flow: a flow is listed before it can be seen, and
leaves the list only when it is found to be gone.
"""

from typing import Final

from taskmq_redis.scripts.state import Script

__all__ = ["LIST_FLOW", "SETTLE_FLOW"]

_NOW: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""

# ARGV: the flow, when it was made, for how many ms it is kept. Some others that may be gone and are to be settled.
LIST_FLOW: Final = Script(
    _NOW
    + """
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
redis.call('ZADD', KEYS[3], string.format('%.0f', now + ARGV[3]), ARGV[1])
return redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', now), 'LIMIT', 0, 10)
"""
)

# ARGV: a flow, and for how many ms more it is known; 0: it is gone. One that was made anew meanwhile stays.
SETTLE_FLOW: Final = Script(
    _NOW
    + """
local ends = redis.call('ZSCORE', KEYS[3], ARGV[1])
if ends and tonumber(ends) > now then
    return 0
end
if tonumber(ARGV[2]) > 0 then
    redis.call('ZADD', KEYS[3], string.format('%.0f', now + ARGV[2]), ARGV[1])
    return 0
end
for at = 1, 3 do
    redis.call('ZREM', KEYS[at], ARGV[1])
end
return 1
"""
)
