-- include now
local kept = redis.call('HMGET', KEYS[1], 'token', 'until', 'keep')
if kept[1] and (kept[1] ~= ARGV[1] or kept[2] == 'free' or kept[2] == 'done') then
    return 0
end
local keep = kept[3] or '3600000'
if kept[1] then
    -- A command that adds nothing comes first: then Redis accepts the rest even with full memory.
    redis.call('PEXPIRE', KEYS[1], ARGV[2] + keep)
end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'until', string.format('%.0f', now + ARGV[2]), 'keep', keep)
if not kept[1] then
    redis.call('HSET', KEYS[1], 'owner', '', 'job', '', 'call', '')
    redis.call('PEXPIRE', KEYS[1], ARGV[2] + keep)
end
return 1
