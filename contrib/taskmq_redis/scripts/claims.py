"""The Lua scripts of claims. `until` is when the lease ends by the server's clock, or 'free', or 'done'."""

from typing import Final

from taskmq_redis.scripts.state import Script

__all__ = ["CLAIM_KEY", "COMPLETE_KEY", "FIND_KEY", "RELEASE_KEY", "RENEW_KEY"]

_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""

# A token is the server's microseconds, or one more than the one before it where that is later: so also what Redis has
# forgotten, by its time or with all its data, is not given twice. `call` is this very call: sent once more after its
# reply was lost, it gets the same answer.
CLAIM_KEY: Final = Script(
    _NOW
    + """
local kept = redis.call('HMGET', KEYS[1], 'owner', 'job', 'token', 'until', 'call')
if kept[4] == 'done' then
    local value = redis.call('HMGET', KEYS[1], 'type', 'value')
    return {kept[2], value[1], value[2]}
end
local left = (kept[4] and kept[4] ~= 'free') and tonumber(kept[4]) - now or 0
if left > 0 and kept[5] == ARGV[6] then
    return {kept[3]}
end
if left > 0 and kept[3] ~= ARGV[5] then
    return {kept[1], kept[2], kept[3], string.format('%.0f', left)}
end
local token = time[1] * 1000000 + time[2]
if kept[3] and tonumber(kept[3]) >= token then
    token = tonumber(kept[3]) + 1
end
token = string.format('%.0f', token)
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'job', ARGV[2], 'token', token,
    'until', string.format('%.0f', now + ARGV[3]), 'call', ARGV[6], 'keep', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[3] + ARGV[4])
return {token}
"""
)

FIND_KEY: Final = Script(
    _NOW
    + """
local kept = redis.call('HMGET', KEYS[1], 'owner', 'job', 'token', 'until', 'type', 'value')
if kept[4] == 'done' then
    return {kept[2], kept[5], kept[6]}
end
local left = (kept[4] and kept[4] ~= 'free') and tonumber(kept[4]) - now or 0
if left > 0 then
    return {kept[1], kept[2], kept[3], string.format('%.0f', left)}
end
return {}
"""
)

RENEW_KEY: Final = Script(
    _NOW
    + """
local kept = redis.call('HMGET', KEYS[1], 'token', 'until', 'keep')
if kept[1] and (kept[1] ~= ARGV[1] or kept[2] == 'free' or kept[2] == 'done') then
    return 0
end
local keep = kept[3] or '3600000'
if kept[1] then
    -- First what adds nothing: then Redis takes the rest also where its memory is full.
    redis.call('PEXPIRE', KEYS[1], ARGV[2] + keep)
end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'until', string.format('%.0f', now + ARGV[2]), 'keep', keep)
if not kept[1] then
    redis.call('HSET', KEYS[1], 'owner', '', 'job', '', 'call', '')
    redis.call('PEXPIRE', KEYS[1], ARGV[2] + keep)
end
return 1
"""
)

COMPLETE_KEY: Final = Script("""
local kept = redis.call('HMGET', KEYS[1], 'token', 'until')
if kept[1] and (kept[1] ~= ARGV[1] or kept[2] == 'free') then
    return 0
end
if kept[2] == 'done' then
    return 1
end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'until', 'done', 'job', ARGV[2], 'type', ARGV[3], 'value', ARGV[4])
redis.call('HDEL', KEYS[1], 'owner', 'call', 'keep')
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 1
""")

# Redis with a full memory takes what only takes away.
RELEASE_KEY: Final = Script("""
local kept = redis.call('HMGET', KEYS[1], 'token', 'until', 'keep')
if not kept[1] then
    return 1
end
if kept[1] ~= ARGV[1] then
    return 0
end
if kept[2] == 'free' or kept[2] == 'done' then
    return 1
end
redis.call('HDEL', KEYS[1], 'owner', 'job', 'call')
redis.call('HSET', KEYS[1], 'until', 'free')
redis.call('PEXPIRE', KEYS[1], kept[3])
return 1
""")
