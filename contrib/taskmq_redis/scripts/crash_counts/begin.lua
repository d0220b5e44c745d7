-- `call` is this very call: sent once more after its reply was lost, it is told the same.
if redis.call('HGET', KEYS[1], 'call') ~= ARGV[2] then
    redis.call('HSET', KEYS[1], 'call', ARGV[2])
    redis.call('HINCRBY', KEYS[1], 'begun', 1)
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return tonumber(redis.call('HGET', KEYS[1], 'begun'))
