redis.call('HDEL', KEYS[1], 'is_redriving')
return 1
