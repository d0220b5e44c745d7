-- With full memory, Redis still accepts commands that only remove data.
local kept = redis.call('HMGET', KEYS[1], 'token', 'until', 'keep')
if not kept[1] then
    return 1
end
if kept[1] ~= ARGV[1] then
    return 0
end
if kept[2] == 'free' or kept[2] == 'done' then
    return 1
end
redis.call('HDEL', KEYS[1], 'owner', 'job', 'call')
redis.call('HSET', KEYS[1], 'until', 'free')
redis.call('PEXPIRE', KEYS[1], kept[3])
return 1
