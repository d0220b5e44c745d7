local lease = redis.call('ZSCORE', KEYS[3], ARGV[1])
if lease and tonumber(lease) > now then
    return 0
end
