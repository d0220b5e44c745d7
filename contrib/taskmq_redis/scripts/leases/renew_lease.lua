-- With full memory, Redis runs a script whose first change adds nothing. Leases must be renewed and released even
-- then, so scripts that do this set the key's time to live first.
-- include leases/lease
if left <= 0 or kept[2] ~= ARGV[1] then
    return 0
end
-- include leases/keep_lease
redis.call('HSET', KEYS[1], 'until', string.format('%.0f', now + ARGV[2]))
if ARGV[3] then
    redis.call('HSET', KEYS[1], 'note', ARGV[3])
end
-- include leases/keep_member
return 1
