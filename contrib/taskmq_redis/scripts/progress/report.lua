-- A superseded run no longer reports progress of the job.
local kept = redis.call('HMGET', KEYS[1], 'attempt', 'started')
if kept[1] and tonumber(kept[2]) > tonumber(ARGV[2]) and tonumber(kept[1]) >= tonumber(ARGV[1]) then
    return 0
end
redis.call('HSET', KEYS[1], 'attempt', ARGV[1], 'started', ARGV[2], 'record', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
