for at = 1, #ARGV, 2 do
    local kept = redis.call('HGET', KEYS[1], ARGV[at])
    if kept and string.sub(kept, 1, 16) == ARGV[at + 1] then
        redis.call('ZREM', KEYS[3], ARGV[at])
        redis.call('ZADD', KEYS[2], string.sub(kept, 17, 32), ARGV[at])
    end
end
redis.call('PUBLISH', KEYS[2], '')
return 1
