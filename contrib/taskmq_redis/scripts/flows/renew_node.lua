-- ARGV: node, token, ms. `keep` comes first, here and in `release_node`: it adds nothing, so Redis accepts the rest
-- even with full memory.
-- include flows/flow
if call('HGET', F, 'is_open') ~= '1' then
    return 0
end
local token, till, owner = claim_of(ARGV[1])
if token ~= ARGV[2] or ENDED[call('HGET', S, ARGV[1])] then
    return 0
end
keep()
call('HSET', C, ARGV[1], token .. ' ' .. number(now + ARGV[3]) .. ' ' .. owner)
return 1
