-- ARGV: node, name, whether these nodes are the last, calls.
-- include flows/flow
if call('HGET', F, 'is_open') ~= '1' then
    return -1
end
local key, named = ARGV[1], 'n:' .. ARGV[1] .. '/' .. ARGV[2]
local batch = find(key)
if not batch or batch.map or batch.kind ~= 'batch' then
    return -1
end
local earlier = ARGV[2] ~= '' and call('HGET', G, named)
if earlier then
    return tonumber(earlier)
end
if batch.total and ARGV[3] == '1' and #ARGV == 3 then
    return batch.total
end
if batch.state ~= 'ready' or batch.total then
    return -1
end
local following = 'n:' .. key .. '/'
local first = tonumber(call('HGET', G, following) or '0')
for at = 4, #ARGV do
    local child = key .. '.' .. number(first + at - 4)
    call('HSET', S, child, 'waiting')
    call('HSET', G, 'c:' .. child, ARGV[at])
    call('SADD', O, child)
    evaluate(find(child), true)
end
local total = number(first + #ARGV - 3)
call('HSET', G, following, total)
if ARGV[2] ~= '' then
    call('HSET', G, named, number(first))
end
if ARGV[3] == '1' then
    call('HSET', G, 't:' .. key, total)
    call('HSET', V, key, total)
    evaluate(find(key), true)
end
keep()
return first
