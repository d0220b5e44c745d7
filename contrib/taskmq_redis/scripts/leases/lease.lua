-- A token is the server's microseconds, or one more than the one before it where that is later: so also what Redis
-- has forgotten, by its time or with all its data, is not given twice. A lease that has ended is remembered for an
-- hour, in case the clock is set back.
-- include now
local kept = redis.call('HMGET', KEYS[1], 'owner', 'token', 'until', 'note', 'call')
local left = kept[3] and tonumber(kept[3]) - now or 0
