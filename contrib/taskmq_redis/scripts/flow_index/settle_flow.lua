-- ARGV: a flow, and for how many more ms it is known; 0: it expired. A flow that was created again meanwhile stays.
-- include now
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
