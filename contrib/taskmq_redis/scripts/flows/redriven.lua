-- ARGV: the redriver.
local kept = redis.call('HGET', KEYS[1], 'is_redriving')
if kept and string.match(kept, '^%S+') == ARGV[1] then
    redis.call('HDEL', KEYS[1], 'is_redriving')
end
return 1
