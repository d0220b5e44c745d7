-- The next token is reserved and remembered for a while, so that tokens grow however fast runs follow each other.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then
    return 0
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'token', string.format('%.0f', tonumber(ARGV[1]) + 1))
redis.call('PEXPIRE', KEYS[1], 60000)
return 1
