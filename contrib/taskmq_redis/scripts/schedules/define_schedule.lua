-- A letter before the definition distinguishes it from none.
-- include schedules/place
local kept = redis.call('HGET', KEYS[1], ARGV[1])
kept = kept and ('=' .. kept) or ''
if kept == ARGV[3] then
    return 1
end
if kept ~= ARGV[2] then
    return 0
end
redis.call('ZADD', KEYS[2], place(), ARGV[1])
if ARGV[3] == '' then
    redis.call('HDEL', KEYS[1], ARGV[1])
    redis.call('ZADD', KEYS[3], now, ARGV[1])
else
    redis.call('HSET', KEYS[1], ARGV[1], string.sub(ARGV[3], 2))
    redis.call('ZREM', KEYS[3], ARGV[1])
end
-- include schedules/prune
