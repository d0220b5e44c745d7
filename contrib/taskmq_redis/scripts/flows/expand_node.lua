-- ARGV: node, number of the first child, total, calls.
-- include flows/flow
if call('HGET', F, 'is_open') ~= '1' then
    return 0
end
local key = ARGV[1]
local map = find(key)
if not map or map.kind ~= 'map' or map.state ~= 'ready' or map.total then
    return 0
end
for at = 4, #ARGV do
    local child = key .. '.' .. number(ARGV[2] + at - 4)
    if call('HSETNX', S, child, 'waiting') == 1 then
        call('HSET', G, 'c:' .. child, ARGV[at])
        call('SADD', O, child)
        evaluate(find(child), true)
    end
end
if ARGV[2] + #ARGV - 3 >= tonumber(ARGV[3]) then
    call('HSET', G, 't:' .. key, ARGV[3])
    call('HSET', V, key, ARGV[3])
    evaluate(find(key), true)
end
keep()
return 1
