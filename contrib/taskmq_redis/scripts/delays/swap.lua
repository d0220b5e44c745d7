-- Compare and set. If this very call has already set the value, the answer is the same.
-- include now
-- include delays/is_on_its_way
local kept = redis.call('HGET', KEYS[1], ARGV[1])
if kept == ARGV[3] then
    return 1
end
if not kept or string.sub(kept, 33) ~= ARGV[2] then
    return 0
end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('ZADD', KEYS[2], string.sub(ARGV[3], 17, 32), ARGV[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
-- include delays/tell
return 1
