local kept = redis.call('HMGET', KEYS[1], 'until', 'job')
if kept[1] ~= 'done' or kept[2] ~= ARGV[1] then
    return 0
end
redis.call('DEL', KEYS[1])
return 1
