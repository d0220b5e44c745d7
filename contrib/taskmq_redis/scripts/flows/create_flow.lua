-- ARGV: head, ttl. Returns the creation time; 0 if the flow exists.
if redis.call('HGET', KEYS[1], 'is_open') == '1' then
    return 0
end
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], 'head', ARGV[1], 'ttl', ARGV[2], 'run', '0', 'token', '0')
redis.call('HSETNX', KEYS[1], 'started', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return tonumber(redis.call('HGET', KEYS[1], 'started'))
