-- A member stays in its group's list as long as its lease is remembered; the longest of these times keeps the list.
if KEYS[2] then
    redis.call('ZADD', KEYS[2], now + ARGV[2] + 3600000, KEYS[1])
    if redis.call('PTTL', KEYS[2]) < ARGV[2] + 3600000 then
        redis.call('PEXPIRE', KEYS[2], ARGV[2] + 3600000)
    end
end
