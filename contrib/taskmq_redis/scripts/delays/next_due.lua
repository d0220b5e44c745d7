-- include delays/reclaim
return redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
