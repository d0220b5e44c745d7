-- A member is in the list of its group for as long as its lease is remembered, and the longest of them keeps the
-- list.
if KEYS[2] then
    redis.call('ZADD', KEYS[2], now + ARGV[2] + 3600000, KEYS[1])
    if redis.call('PTTL', KEYS[2]) < ARGV[2] + 3600000 then
        redis.call('PEXPIRE', KEYS[2], ARGV[2] + 3600000)
    end
end
