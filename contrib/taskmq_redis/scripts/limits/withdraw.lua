-- KEYS: lines, by instant and by order. ARGV: job.
for at = 1, #KEYS do
    redis.call('ZREM', KEYS[at], ARGV[1])
end
return 1
