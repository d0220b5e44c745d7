-- The keys of the members' leases. Those that nothing is known of any more leave the list.
-- include now
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
return redis.call('ZRANGE', KEYS[1], 0, -1)
