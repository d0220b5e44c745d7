for at = 1, #ARGV, 2 do
    local kept = redis.call('HGET', KEYS[1], ARGV[at])
    if kept and string.sub(kept, 1, 16) == ARGV[at + 1] then
        redis.call('HDEL', KEYS[1], ARGV[at])
        redis.call('ZREM', KEYS[2], ARGV[at])
        redis.call('ZREM', KEYS[3], ARGV[at])
    end
end
return 1
