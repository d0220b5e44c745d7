-- KEYS: holders. ARGV: lease; then for each limit the hold and the number of permits.
-- include now_us
local lease, answers = tonumber(ARGV[1]), {}
for at = 1, #KEYS do
    local hold, places = ARGV[at * 2], tonumber(ARGV[at * 2 + 1])
    redis.call('ZREMRANGEBYSCORE', KEYS[at], '-inf', string.format('%.0f', now))
    answers[at] = 0
    if redis.call('ZSCORE', KEYS[at], hold) or redis.call('ZCARD', KEYS[at]) < places then
        redis.call('ZADD', KEYS[at], string.format('%.0f', now + lease), hold)
        redis.call('PEXPIRE', KEYS[at], string.format('%.0f', lease / 1000 + 60000))
        answers[at] = 1
    end
end
return answers
