-- KEYS of all scripts of delayed jobs: messages, due times, leased jobs. A message is stored as its token, its due
-- time, and itself.
if redis.call('ZRANGE', KEYS[2], 0, 0)[1] == ARGV[1] then
    redis.call('PUBLISH', KEYS[2], '')
end
