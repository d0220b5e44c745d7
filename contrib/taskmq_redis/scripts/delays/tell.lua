-- KEYS of all scripts of delayed jobs: messages, due, taken. A message is kept as its token, its due instant, and
-- itself.
if redis.call('ZRANGE', KEYS[2], 0, 0)[1] == ARGV[1] then
    redis.call('PUBLISH', KEYS[2], '')
end
