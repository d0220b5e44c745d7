-- A token is the server's microseconds, or the last token plus one if that is greater. So no token is issued twice,
-- even if Redis forgot the key by expiry or lost all its data. `call` identifies the call: if it is repeated after a
-- lost reply, it gets the same answer.
-- include now
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
