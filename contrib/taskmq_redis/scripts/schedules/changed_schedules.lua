local answer = {}
local found = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for at = 1, #found, 2 do
    local kept = redis.call('HGET', KEYS[1], found[at])
    answer[#answer + 1] = found[at]
    answer[#answer + 1] = string.format('%.0f', tonumber(found[at + 1]))
    answer[#answer + 1] = kept and ('=' .. kept) or ''
end
return answer
