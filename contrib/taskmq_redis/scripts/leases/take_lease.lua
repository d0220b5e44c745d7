-- `call` identifies the call: if it is repeated after a lost reply, it gets the same answer.
-- include leases/lease
if left > 0 and kept[5] == ARGV[4] then
    return {kept[2]}
end
if left > 0 then
    return {kept[1], kept[2], string.format('%.0f', left), kept[4]}
end
local token = time[1] * 1000000 + time[2]
if kept[2] and tonumber(kept[2]) >= token then
    token = tonumber(kept[2]) + 1
end
token = string.format('%.0f', token)
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', token, 'until', string.format('%.0f', now + ARGV[2]),
    'note', ARGV[3], 'call', ARGV[4])
-- include leases/keep_lease
-- include leases/keep_member
return {token}
