local kept = redis.call('HMGET', KEYS[1], 'token', 'until')
if kept[1] and (kept[1] ~= ARGV[1] or kept[2] == 'free') then
    return 0
end
if kept[2] == 'done' then
    return 1
end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'until', 'done', 'job', ARGV[2], 'type', ARGV[3], 'value', ARGV[4])
redis.call('HDEL', KEYS[1], 'owner', 'call', 'keep')
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 1
