local gone = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now - 86400000, 'LIMIT', 0, 500)
if #gone > 0 then
    redis.call('ZREM', KEYS[2], unpack(gone))
    redis.call('ZREM', KEYS[3], unpack(gone))
end
redis.call('PUBLISH', KEYS[2], '')
return 1
