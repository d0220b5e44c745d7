-- ARGV: the number of graph fields, the fields, then the new nodes' keys.
-- include flows/flow
if not ttl or call('HGET', F, 'is_open') == '1' then
    return 0
end
local last = 1 + ARGV[1] * 2
for at = 2, last, 2 do
    call('HSET', G, ARGV[at], ARGV[at + 1])
end
for at = last + 1, #ARGV do
    call('HSETNX', S, ARGV[at], 'waiting')
    call('SADD', O, ARGV[at])
end
keep()
return 1
