redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], string.sub(ARGV[2], 17, 32), ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
-- include delays/tell
return 1
