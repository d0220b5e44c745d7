-- include delays/reclaim
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
