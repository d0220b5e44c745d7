-- Returns the keys of the members' leases. Forgotten members are removed from the list.
-- include now
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
return redis.call('ZRANGE', KEYS[1], 0, -1)
