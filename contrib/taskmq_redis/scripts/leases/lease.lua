-- A token is the server's microseconds, or the last token plus one if that is greater. So no token is issued twice,
-- even if Redis forgot the key by expiry or lost all its data. An ended lease is remembered for an hour, in case the
-- clock is set back.
-- include now
local kept = redis.call('HMGET', KEYS[1], 'owner', 'token', 'until', 'note', 'call')
local left = kept[3] and tonumber(kept[3]) - now or 0
