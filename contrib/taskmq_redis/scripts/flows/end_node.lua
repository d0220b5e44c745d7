-- ARGV: taker, ms, node, token, state, value.
-- include flows/flow
if call('HGET', F, 'is_open') ~= '1' then
    return {}
end
local key = ARGV[3]
local state = call('HGET', S, key)
if not state then
    return {}
end
local token, till, owner = claim_of(key)
if ARGV[4] == '0' then
    if token and till > now then
        return {}
    end
elseif token ~= ARGV[4] then
    return {}
end
if ENDED[state] then
    if state ~= ARGV[5] then
        return {}
    end
    return take(ARGV[1], ARGV[2], '1')
end
call('HSET', V, key, ARGV[6])
if token then
    call('HSET', C, key, token .. ' 0 ' .. owner)
end
end_node(find(key), ARGV[5])
return take(ARGV[1], ARGV[2], '0')
