if redis.call('HGET', KEYS[1], 'token') == ARGV[1] then
    redis.call('PEXPIRE', KEYS[1], 3600000)
    redis.call('HSET', KEYS[1], 'until', '0')
end
return 1
