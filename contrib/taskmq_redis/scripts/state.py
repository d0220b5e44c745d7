"""The Lua scripts. Instants are milliseconds by the server's clock, unless they are a message's.

Redis refuses a command that adds when its memory is full, unless the script has written before. So what adds starts
with that command, and what only moves starts with the removal.
"""

import hashlib
from typing import Final

from taskmq.model.states import JobState

__all__ = [
    "BEGIN",
    "BEGIN_RUN",
    "CANCEL",
    "DONE",
    "DUE_LENGTH",
    "END",
    "FORGET_RUN",
    "GIVE_BACK",
    "LOOK_LEASE",
    "MEMBERS",
    "NEXT_DUE",
    "PUT_MESSAGE",
    "PUT_RESULT",
    "RELEASE_LEASE",
    "RENEW_LEASE",
    "REPORT",
    "REVOKE",
    "REVOKED_SINCE",
    "SAVE",
    "SWAP",
    "TAKE",
    "TAKE_LEASE",
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

# KEYS: the record, and that there was one. A state that nothing may follow stays; the same record again changes
# nothing.
PUT_RESULT: Final = Script(
    "local STICKY = {"
    + ", ".join(f"{state} = true" for state in JobState if state.is_sticky)
    + """}
local kept = redis.call('HMGET', KEYS[1], 'state', 'record')
if STICKY[kept[1]] or kept[2] == ARGV[2] then
    return 0
end
redis.call('HSET', KEYS[1], 'state', ARGV[1], 'record', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('HSET', KEYS[2], 'state', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
redis.call('PUBLISH', KEYS[1], #ARGV[2] <= 8192 and ARGV[2] or '')
return 1
"""
)

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

# A token is the server's microseconds, or one more than the one before it where that is later: so also what Redis has
# forgotten, by its time or with all its data, is not given twice. A lease that has ended is remembered for an hour,
# in case the clock is set back.
_LEASE = (
    _NOW
    + """
local kept = redis.call('HMGET', KEYS[1], 'owner', 'token', 'until', 'note', 'call')
local left = kept[3] and tonumber(kept[3]) - now or 0
"""
)
_KEEP_LEASE = """
redis.call('PEXPIRE', KEYS[1], ARGV[2] + 3600000)
"""
# A member is in the list of its group for as long as its lease is remembered, and the longest of them keeps the list.
_KEEP_MEMBER = """
if KEYS[2] then
    redis.call('ZADD', KEYS[2], now + ARGV[2] + 3600000, KEYS[1])
    if redis.call('PTTL', KEYS[2]) < ARGV[2] + 3600000 then
        redis.call('PEXPIRE', KEYS[2], ARGV[2] + 3600000)
    end
end
"""

# `call` is this very call, as above.
TAKE_LEASE: Final = Script(
    _LEASE
    + """
if left > 0 and kept[5] == ARGV[4] then
    return {kept[2]}
end
if left > 0 then
    return {kept[1], kept[2], string.format('%.0f', left), kept[4]}
end
local token = time[1] * 1000000 + time[2]
if kept[2] and tonumber(kept[2]) >= token then
    token = tonumber(kept[2]) + 1
end
token = string.format('%.0f', token)
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', token, 'until', string.format('%.0f', now + ARGV[2]),
    'note', ARGV[3], 'call', ARGV[4])
"""
    + _KEEP_LEASE
    + _KEEP_MEMBER
    + "return {token}"
)

# Redis with a full memory takes the whole of a script whose first change adds nothing: what is held has to be kept
# and given back also then. So the key's time to live comes first here, and in others of the kind.
RENEW_LEASE: Final = Script(
    _LEASE
    + """
if left <= 0 or kept[2] ~= ARGV[1] then
    return 0
end
"""
    + _KEEP_LEASE
    + """
redis.call('HSET', KEYS[1], 'until', string.format('%.0f', now + ARGV[2]))
if ARGV[3] then
    redis.call('HSET', KEYS[1], 'note', ARGV[3])
end
"""
    + _KEEP_MEMBER
    + "return 1"
)

RELEASE_LEASE: Final = Script("""
if redis.call('HGET', KEYS[1], 'token') == ARGV[1] then
    redis.call('PEXPIRE', KEYS[1], 3600000)
    redis.call('HSET', KEYS[1], 'until', '0')
end
return 1
""")

LOOK_LEASE: Final = Script(
    _LEASE
    + """
if left <= 0 then
    return {}
end
return {kept[1], kept[2], string.format('%.0f', left), kept[4]}
"""
)

# The keys of the members' leases. Those that nothing is known of any more leave the list.
MEMBERS: Final = Script(
    _NOW
    + """
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
return redis.call('ZRANGE', KEYS[1], 0, -1)
"""
)

# A run that was left behind does not tell about the job any more.
REPORT: Final = Script("""
local kept = redis.call('HMGET', KEYS[1], 'attempt', 'started')
if kept[1] and tonumber(kept[2]) > tonumber(ARGV[2]) and tonumber(kept[1]) >= tonumber(ARGV[1]) then
    return 0
end
redis.call('HSET', KEYS[1], 'attempt', ARGV[1], 'started', ARGV[2], 'record', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
""")

# What is saved stands beside `token` and `attempt`, under names that begin with a colon.
BEGIN_RUN: Final = Script(
    _NOW
    + """
local kept = redis.call('HMGET', KEYS[1], 'token', 'attempt')
if kept[2] and tonumber(kept[2]) > tonumber(ARGV[1]) and tonumber(ARGV[1]) > 1 then
    return {''}
end
local token = now
if kept[1] and tonumber(kept[1]) >= now then
    token = tonumber(kept[1]) + 1
end
token = string.format('%.0f', token)
redis.call('HSET', KEYS[1], 'token', token, 'attempt', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local answer = {token}
local all = redis.call('HGETALL', KEYS[1])
for at = 1, #all, 2 do
    if string.sub(all[at], 1, 1) == ':' then
        answer[#answer + 1] = string.sub(all[at], 2)
        answer[#answer + 1] = all[at + 1]
    end
end
return answer
"""
)
SAVE: Final = Script("""
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then
    return 0
end
redis.call('HSET', KEYS[1], ':' .. ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
""")
# The next number is free; it is remembered for a while, so that tokens grow however fast runs come.
FORGET_RUN: Final = Script("""
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then
    return 0
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'token', string.format('%.0f', tonumber(ARGV[1]) + 1))
redis.call('PEXPIRE', KEYS[1], 60000)
return 1
""")

# KEYS: jobs by place, jobs by the end of their time, reasons. A place is the server's microseconds, or one more than
# the last: so it grows, although everything here is forgotten one day.
_PRUNE_REVOKED = """
while true do
    local gone = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 500)
    if #gone == 0 then
        break
    end
    redis.call('ZREM', KEYS[1], unpack(gone))
    redis.call('ZREM', KEYS[2], unpack(gone))
    redis.call('HDEL', KEYS[3], unpack(gone))
end
"""
# Pruned first: what has ended is a new one when it comes again, behind the places that were read.
REVOKE: Final = Script(
    _NOW
    + _PRUNE_REVOKED
    + """
local ends = now + ARGV[3]
local known = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not known then
    local place = time[1] * 1000000 + time[2]
    local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
    if last and tonumber(last) >= place then
        place = tonumber(last) + 1
    end
    redis.call('ZADD', KEYS[1], string.format('%.0f', place), ARGV[1])
    redis.call('HSET', KEYS[3], ARGV[1], ARGV[2])
end
if not known or tonumber(known) < ends then
    redis.call('ZADD', KEYS[2], string.format('%.0f', ends), ARGV[1])
end
for at = 1, 3 do
    if redis.call('PTTL', KEYS[at]) < tonumber(ARGV[3]) then
        redis.call('PEXPIRE', KEYS[at], ARGV[3])
    end
end
return 1
"""
)
REVOKED_SINCE: Final = Script(
    _NOW
    + _PRUNE_REVOKED
    + """
local answer = {}
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for at = 1, #found, 2 do
    local ends = redis.call('ZSCORE', KEYS[2], found[at])
    local reason = redis.call('HGET', KEYS[3], found[at])
    answer[#answer + 1] = found[at]
    answer[#answer + 1] = reason or ''
    answer[#answer + 1] = string.format('%.0f', tonumber(found[at + 1]))
    answer[#answer + 1] = ends or '0'
end
return answer
"""
)

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

# Compared and set. What is there already, by this very call, gets the same answer.
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
