"""The Lua scripts of schedules. A record is kept as its version, 16 characters, and its value."""

from typing import Final

from taskmq_redis.scripts.state import Script

__all__ = ["CHANGED_SCHEDULES", "DEFINE_SCHEDULE", "SWAP_RECORDS", "TELL_SCHEDULES", "VERSION_LENGTH"]

VERSION_LENGTH: Final = 16

# For each key: the version before, and what is to be there. "" says that it is so, by this call or an earlier one.
SWAP_RECORDS: Final = Script("""
local answer = {}
for at = 1, #KEYS do
    local kept = redis.call('GET', KEYS[at])
    local version = kept and string.sub(kept, 1, 16) or ''
    local after = ARGV[2 * at + 1]
    if version == ARGV[2 * at] or version == string.sub(after, 1, 16) then
        redis.call('SET', KEYS[at], after, 'PX', ARGV[1])
        answer[at] = ''
    else
        answer[at] = kept
    end
end
return answer
""")

# KEYS of all that follow: definitions, names by the place of their last change, names that have no definition by when
# that was. A place is the server's microseconds, or one more than the last.
_PLACE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function place()
    local next_one = time[1] * 1000000 + time[2]
    local last = redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
    if last and tonumber(last) >= next_one then
        next_one = tonumber(last) + 1
    end
    return string.format('%.0f', next_one)
end
"""
_PRUNE = """
local gone = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now - 86400000, 'LIMIT', 0, 500)
if #gone > 0 then
    redis.call('ZREM', KEYS[2], unpack(gone))
    redis.call('ZREM', KEYS[3], unpack(gone))
end
redis.call('PUBLISH', KEYS[2], '')
return 1
"""

# A definition is told from none by a letter before it.
DEFINE_SCHEDULE: Final = Script(
    _PLACE
    + """
local kept = redis.call('HGET', KEYS[1], ARGV[1])
kept = kept and ('=' .. kept) or ''
if kept == ARGV[3] then
    return 1
end
if kept ~= ARGV[2] then
    return 0
end
redis.call('ZADD', KEYS[2], place(), ARGV[1])
if ARGV[3] == '' then
    redis.call('HDEL', KEYS[1], ARGV[1])
    redis.call('ZADD', KEYS[3], now, ARGV[1])
else
    redis.call('HSET', KEYS[1], ARGV[1], string.sub(ARGV[3], 2))
    redis.call('ZREM', KEYS[3], ARGV[1])
end
"""
    + _PRUNE
)

TELL_SCHEDULES: Final = Script(
    _PLACE
    + """
for _, name in ipairs(ARGV) do
    redis.call('ZADD', KEYS[2], place(), name)
    if redis.call('HEXISTS', KEYS[1], name) == 0 then
        redis.call('ZADD', KEYS[3], now, name)
    end
end
"""
    + _PRUNE
)

CHANGED_SCHEDULES: Final = Script("""
local answer = {}
local found = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for at = 1, #found, 2 do
    local kept = redis.call('HGET', KEYS[1], found[at])
    answer[#answer + 1] = found[at]
    answer[#answer + 1] = string.format('%.0f', tonumber(found[at + 1]))
    answer[#answer + 1] = kept and ('=' .. kept) or ''
end
return answer
""")
