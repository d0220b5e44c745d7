-- KEYS: jobs by place, jobs by expiry, reasons. A place is the server's microseconds, or the last place plus one if
-- that is greater: so places grow, although all of this is forgotten one day.
while true do
    local gone = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 500)
    if #gone == 0 then
        break
    end
    redis.call('ZREM', KEYS[1], unpack(gone))
    redis.call('ZREM', KEYS[2], unpack(gone))
    redis.call('HDEL', KEYS[3], unpack(gone))
end
