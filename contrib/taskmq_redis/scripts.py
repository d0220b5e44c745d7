"""The Lua scripts. Instants are milliseconds by the server's clock, unless they are a message's.

Redis refuses a command that adds when its memory is full, unless the script has written before. So what adds starts
with that command, and what only moves starts with the removal.
"""

import hashlib
from typing import Final

__all__ = [
    "BEGIN",
    "CANCEL",
    "CLAIM",
    "COMPLETE",
    "DONE",
    "DUE_LENGTH",
    "END",
    "GIVE_BACK",
    "NEXT_DUE",
    "PUT_MESSAGE",
    "PUT_RESULT",
    "SWAP",
    "TAKE",
    "TOKEN_LENGTH",
    "Script",
]

TOKEN_LENGTH: Final = 16
DUE_LENGTH: Final = 16


class Script:
    """A script by its source and its hash."""

    __slots__ = ("digest", "source")

    def __init__(self, source: str) -> None:
        self.source = source.strip().encode()
        # SHA-1 is the name that Redis has for a script, not a protection.
        self.digest = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()


_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""

# A success stays; the same record again changes nothing.
PUT_RESULT: Final = Script("""
local kept = redis.call('HMGET', KEYS[1], 'state', 'record')
if kept[1] == 'succeeded' or kept[2] == ARGV[2] then
    return 0
end
redis.call('HSET', KEYS[1], 'state', ARGV[1], 'record', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PUBLISH', KEYS[1], #ARGV[2] <= 8192 and ARGV[2] or '')
return 1
""")

# `claim` is this very call: sent once more after its reply was lost, it is told the same.
CLAIM: Final = Script(
    _NOW
    + """
local kept = redis.call('HMGET', KEYS[1], 'until', 'claim')
if kept[2] == ARGV[4] then
    return 1
end
if kept[1] and (kept[1] == 'completed' or tonumber(kept[1]) > now) then
    return 0
end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'until', string.format('%.0f', now + ARGV[2]), 'claim', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
"""
)
COMPLETE: Final = Script("""
redis.call('HSET', KEYS[1], 'until', 'completed', 'claim', '')
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
""")

# `call` is this very call, as above.
BEGIN: Final = Script("""
if redis.call('HGET', KEYS[1], 'call') ~= ARGV[2] then
    redis.call('HSET', KEYS[1], 'call', ARGV[2])
    redis.call('HINCRBY', KEYS[1], 'begun', 1)
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return tonumber(redis.call('HGET', KEYS[1], 'begun'))
""")

END: Final = Script("""
return redis.call('DEL', KEYS[1])
""")

# KEYS of all that follow: messages, due, taken. A message is kept as its token, its due instant, and itself.
_TELL = """
if redis.call('ZRANGE', KEYS[2], 0, 0)[1] == ARGV[1] then
    redis.call('PUBLISH', KEYS[2], '')
end
"""
_RECLAIM = (
    _NOW
    + """
for _, job in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 1000)) do
    redis.call('ZREM', KEYS[3], job)
    local kept = redis.call('HGET', KEYS[1], job)
    if kept then
        redis.call('ZADD', KEYS[2], string.sub(kept, 17, 32), job)
    end
end
"""
)
_IS_ON_ITS_WAY = """
local lease = redis.call('ZSCORE', KEYS[3], ARGV[1])
if lease and tonumber(lease) > now then
    return 0
end
"""

PUT_MESSAGE: Final = Script(
    """
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], string.sub(ARGV[2], 17, 32), ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
"""
    + _TELL
    + "return 1"
)

TAKE: Final = Script(
    _RECLAIM
    + """
local jobs = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
local taken = {}
for _, job in ipairs(jobs) do
    redis.call('ZREM', KEYS[2], job)
    local kept = redis.call('HGET', KEYS[1], job)
    if kept then
        redis.call('ZADD', KEYS[3], string.format('%.0f', now + ARGV[3]), job)
        taken[#taken + 1] = kept
    end
end
return taken
"""
)

DONE: Final = Script("""
for at = 1, #ARGV, 2 do
    local kept = redis.call('HGET', KEYS[1], ARGV[at])
    if kept and string.sub(kept, 1, 16) == ARGV[at + 1] then
        redis.call('HDEL', KEYS[1], ARGV[at])
        redis.call('ZREM', KEYS[2], ARGV[at])
        redis.call('ZREM', KEYS[3], ARGV[at])
    end
end
return 1
""")

GIVE_BACK: Final = Script("""
for at = 1, #ARGV, 2 do
    local kept = redis.call('HGET', KEYS[1], ARGV[at])
    if kept and string.sub(kept, 1, 16) == ARGV[at + 1] then
        redis.call('ZREM', KEYS[3], ARGV[at])
        redis.call('ZADD', KEYS[2], string.sub(kept, 17, 32), ARGV[at])
    end
end
redis.call('PUBLISH', KEYS[2], '')
return 1
""")

NEXT_DUE: Final = Script(
    _RECLAIM
    + """
return redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
"""
)

CANCEL: Final = Script(
    _NOW
    + _IS_ON_ITS_WAY
    + """
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
return redis.call('HDEL', KEYS[1], ARGV[1])
"""
)

# Compared and set. What is there already, by this very call, is told the same.
SWAP: Final = Script(
    _NOW
    + _IS_ON_ITS_WAY
    + """
local kept = redis.call('HGET', KEYS[1], ARGV[1])
if kept == ARGV[3] then
    return 1
end
if not kept or string.sub(kept, 33) ~= ARGV[2] then
    return 0
end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('ZADD', KEYS[2], string.sub(ARGV[3], 17, 32), ARGV[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
"""
    + _TELL
    + "return 1"
)
