-- KEYS: for each limit its state and its holders. ARGV: hold, how long it was held.
for at = 1, #KEYS, 2 do
    if redis.call('ZREM', KEYS[at + 1], ARGV[1]) == 1 and ARGV[2] ~= '' then
        local average = tonumber(redis.call('HGET', KEYS[at], 'average') or 0)
        average = average == 0 and tonumber(ARGV[2]) or average * 0.8 + tonumber(ARGV[2]) * 0.2
        redis.call('HSET', KEYS[at], 'average', string.format('%.0f', math.max(average, 1)))
        if redis.call('PTTL', KEYS[at]) < 3600000 then
            redis.call('PEXPIRE', KEYS[at], 3600000)
        end
    end
end
return 1
