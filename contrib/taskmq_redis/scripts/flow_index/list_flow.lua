-- ARGV: the flow, its creation time, for how many ms it is kept. Returns a few flows that may have expired, to be
-- settled.
-- include now
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
redis.call('ZADD', KEYS[3], string.format('%.0f', now + ARGV[3]), ARGV[1])
return redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', now), 'LIMIT', 0, 10)
