-- ARGV: the redriver, ms. Returns 0: nothing to do; -1: continue; else for how many ms another redriver owns the
-- flow.
-- include flows/flow
if call('HGET', F, 'is_open') ~= '1' then
    return 0
end
local owner, till = string.match(call('HGET', F, 'is_redriving') or '', '^(%S+) (%S+)$')
if owner and tonumber(till) > now then
    return tonumber(till) - now
end
if call('HEXISTS', F, 'is_redriving') == 0 then
    if call('SCARD', O) > 0 or call('SCARD', B) == 0 then
        return 0
    end
    call('HINCRBY', F, 'run', 1)
    call('HDEL', F, 'cancelled')
    withdraw('.')
end
call('HSET', F, 'is_redriving', ARGV[1] .. ' ' .. number(now + ARGV[2]))
keep_all()
return -1
