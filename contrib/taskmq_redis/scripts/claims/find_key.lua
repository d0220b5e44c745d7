-- include now
local kept = redis.call('HMGET', KEYS[1], 'owner', 'job', 'token', 'until', 'type', 'value')
if kept[4] == 'done' then
    return {kept[2], kept[5], kept[6]}
end
local left = (kept[4] and kept[4] ~= 'free') and tonumber(kept[4]) - now or 0
if left > 0 then
    return {kept[1], kept[2], kept[3], string.format('%.0f', left)}
end
return {}
