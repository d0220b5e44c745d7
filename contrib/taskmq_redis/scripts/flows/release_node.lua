-- include flows/flow
if call('HGET', F, 'is_open') ~= '1' then
    return 0
end
local token, till, owner = claim_of(ARGV[1])
if token == ARGV[2] then
    keep()
    call('HSET', C, ARGV[1], token .. ' 0 ' .. owner)
end
return 1
