-- include now
for _, job in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 1000)) do
    redis.call('ZREM', KEYS[3], job)
    local kept = redis.call('HGET', KEYS[1], job)
    if kept then
        redis.call('ZADD', KEYS[2], string.sub(kept, 17, 32), job)
    end
end
