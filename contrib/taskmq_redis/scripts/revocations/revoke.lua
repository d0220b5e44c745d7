-- Pruned first: an expired revocation that is repeated is a new one, after the places that were already read.
-- include now
-- include revocations/prune_revoked
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
