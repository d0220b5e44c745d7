-- KEYS: the record, and the mark that there was one. A final state is never replaced; putting the same record again
-- changes nothing.
local STICKY = {succeeded = true, expired = true, skipped = true, upstream_failed = true}
local kept = redis.call('HMGET', KEYS[1], 'state', 'record')
if STICKY[kept[1]] or kept[2] == ARGV[2] then
    return 0
end
redis.call('HSET', KEYS[1], 'state', ARGV[1], 'record', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('HSET', KEYS[2], 'state', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
redis.call('PUBLISH', KEYS[1], #ARGV[2] <= 8192 and ARGV[2] or '')
return 1
