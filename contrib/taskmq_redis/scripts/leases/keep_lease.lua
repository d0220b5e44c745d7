redis.call('PEXPIRE', KEYS[1], ARGV[2] + 3600000)
