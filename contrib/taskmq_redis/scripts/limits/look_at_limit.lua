-- KEYS: line, holders.
-- include now_us
local held = redis.call('ZCOUNT', KEYS[2], '(' .. string.format('%.0f', now), '+inf')
return {held, redis.call('ZCOUNT', KEYS[1], string.format('%.0f', now - 600000000), '+inf')}
