-- Saved values are fields next to `token` and `attempt`; their names begin with a colon.
-- include now
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
