-- `call` identifies the call: if it is repeated after a lost reply, it gets the same answer.
if redis.call('HGET', KEYS[1], 'call') ~= ARGV[2] then
    redis.call('HSET', KEYS[1], 'call', ARGV[2])
    redis.call('HINCRBY', KEYS[1], 'begun', 1)
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return tonumber(redis.call('HGET', KEYS[1], 'begun'))
