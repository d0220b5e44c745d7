-- include schedules/place
for _, name in ipairs(ARGV) do
    redis.call('ZADD', KEYS[2], place(), name)
    if redis.call('HEXISTS', KEYS[1], name) == 0 then
        redis.call('ZADD', KEYS[3], now, name)
    end
end
-- include schedules/prune
