-- ARGV: reason, keys. Returns the keys of running nodes.
-- include flows/flow
if call('HGET', F, 'is_open') ~= '1' then
    return {}
end
local running = {}
for at = 2, #ARGV do
    local key = ARGV[at]
    if not ENDED[call('HGET', S, key)] then
        local token, till = claim_of(key)
        if token and till > now then
            running[#running + 1] = key
        else
            call('HSET', V, key, ARGV[1])
            call('HSET', S, key, 'cancelled')
            withdraw(key)
            close(find(key))
        end
    end
end
keep_all()
return running
