-- KEYS of all scripts that include this, and of `changed_schedules`: definitions, names by the place of their last
-- change, names without a definition by the time of its removal. A place is the server's microseconds, or the last
-- place plus one if that is greater.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function place()
    local next_one = time[1] * 1000000 + time[2]
    local last = redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
    if last and tonumber(last) >= next_one then
        next_one = tonumber(last) + 1
    end
    return string.format('%.0f', next_one)
end
