-- ARGV: node, number of the first child, total, calls.
-- include flows/flow
if call('HGET', F, 'is_open') ~= '1' then
    return 0
end

-- Counts a map's children: those below the total, where some may be missing, and all from there on.
local function children(map, total)
    local there = 0
    for from = 0, total - 1, 100 do
        local names = {}
        for child = from, math.min(from + 100, total) - 1 do
            names[#names + 1] = map .. '.' .. number(child)
        end
        for _, state in ipairs(call('HMGET', S, unpack(names))) do
            there = there + (state and 1 or 0)
        end
    end
    while call('HEXISTS', S, map .. '.' .. number(total)) == 1 do
        there, total = there + 1, total + 1
    end
    return there
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
    local there = children(key, tonumber(ARGV[3]))
    if there ~= tonumber(ARGV[3]) then
        call('HSET', G, 'k:' .. key, there)
    end
    call('HSET', V, key, ARGV[3])
    evaluate(find(key), true)
end
keep()
return 1
