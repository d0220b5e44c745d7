-- include now
-- include revocations/prune_revoked
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
