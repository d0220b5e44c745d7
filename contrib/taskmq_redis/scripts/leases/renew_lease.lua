-- Redis with a full memory takes the whole of a script whose first change adds nothing: what is held has to be kept
-- and given back also then. So the key's time to live comes first here, and in others that keep or give back.
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
