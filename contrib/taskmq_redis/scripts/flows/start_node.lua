-- ARGV: node, owner, ms, whether the present runner has lost the node.
-- include flows/flow
if call('HGET', F, 'is_open') ~= '1' then
    return {}
end
local key = ARGV[1]
local state = call('HGET', S, key)
if not state then
    return {}
end
if ENDED[state] then
    return {'ended', state, call('HGET', V, key) or ''}
end
if state == 'waiting' then
    return {'busy', '5000'}
end
local token, till, owner = claim_of(key)
if token and till > now and owner ~= ARGV[2] and ARGV[4] ~= '1' then
    return {'busy', number(till - now)}
end
if not token or till <= now or owner ~= ARGV[2] then
    token = number(call('HINCRBY', F, 'token', 1))
    call('HSET', C, key, token .. ' ' .. number(now + ARGV[3]) .. ' ' .. ARGV[2])
    keep()
end
return {'begun', token, call('HGET', G, 'c:' .. key) or ''}
