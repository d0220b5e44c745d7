-- The same algorithm as `taskmq_local.rules.limits`, which explains it. KEYS: for each demand its state, its line by
-- instant and by order, and its holders. ARGV: job, hold, lease, patience; then for each demand `rate` or `strict`,
-- interval, burst, or `places`, places, 0.
-- include now_us
local job, hold, lease, patience = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local count = #KEYS / 4
local SLACK, MISSED, GRACE, EARLY, LAPSE, HOUR = 250000, 1000000, 2000000, 250000, 600000000, 3600000000
local LOOKED_AT = 256
local answers, all, strict = {}, true, false

for at = 1, count do
    strict = strict or ARGV[at * 3 + 2] == 'strict'
end

local function ahead(line, before)
    return redis.call('ZCOUNT', line, string.format('%.0f', now - GRACE), before)
end

-- Counts the jobs ahead of this one in the line that are not late. It reads the smaller of two groups: jobs ahead,
-- and late jobs. If both are large, the remaining late jobs, late for longest, count as ahead.
local function rank(line, order)
    local before = redis.call('ZRANK', order, job) or 0
    local since = string.format('%.0f', now - GRACE)
    local late = before > 0 and redis.call('ZCOUNT', line, '-inf', '(' .. since) or 0
    if late == 0 then
        return before
    end
    local gone = 0
    if before <= math.min(late, LOOKED_AT) then
        for _, name in ipairs(redis.call('ZRANGE', order, 0, before - 1)) do
            if tonumber(redis.call('ZSCORE', line, name) or now) < tonumber(since) then
                gone = gone + 1
            end
        end
        return before - gone
    end
    gone = math.max(late - LOOKED_AT, 0)
    local place = tonumber(redis.call('ZSCORE', order, job))
    for _, name in ipairs(redis.call('ZREVRANGEBYSCORE', line, '(' .. since, '-inf', 'LIMIT', 0, LOOKED_AT)) do
        if tonumber(redis.call('ZSCORE', order, name) or place) < place then
            gone = gone + 1
        end
    end
    return math.max(before - gone, 0)
end

for at = 1, count do
    local facts, line, order, held = KEYS[at * 4 - 3], KEYS[at * 4 - 2], KEYS[at * 4 - 1], KEYS[at * 4]
    local kind, number, burst = ARGV[at * 3 + 2], tonumber(ARGV[at * 3 + 3]), tonumber(ARGV[at * 3 + 4])
    local kept = redis.call('HMGET', facts, 'arrival', 'spill', 'average', 'last', 'peak')
    local one = {arrival = tonumber(kept[1] or 0), spill = tonumber(kept[2] or 0), is_new = false}
    one.peak = tonumber(kept[5] or 0)
    local waiting = redis.call('ZCARD', line)
    local promised = false
    if waiting > 0 then
        local gone = redis.call('ZRANGEBYSCORE', line, '-inf', string.format('%.0f', now - LAPSE), 'LIMIT', 0, 1000)
        if #gone > 0 then
            redis.call('ZREM', line, unpack(gone))
            redis.call('ZREM', order, unpack(gone))
            waiting = waiting - #gone
        end
        promised = redis.call('ZSCORE', line, job)
        promised = promised and tonumber(promised)
    end
    one.waiting, one.promised, one.granted, one.at = waiting, promised, false, now
    if kind ~= 'places' then
        local slack = kind == 'strict' and 0 or SLACK
        local earliest = math.max(now, math.max(one.arrival, one.peak) - (burst - 1) * number - slack)
        one.step = number
        local kept_for = number >= 1000000 and math.min(GRACE, number / 2) or 0
        if one.arrival + kept_for <= now and earliest <= now then
            one.granted = true
        elseif not promised then
            one.at = earliest + (waiting > 0 and ahead(line, '+inf') or 0) * number
            one.granted = one.at <= now + patience + 1
            one.is_new = true
        else
            local is_due = promised <= now + math.max(EARLY, patience)
            if is_due and earliest <= now + patience + 1 then
                one.granted, one.at = true, earliest
            else
                one.at, one.is_new = earliest + rank(line, order) * number, true
                if not is_due and promised <= one.at then
                    one.at, one.is_new = promised, false
                end
            end
        end
    else
        redis.call('ZREMRANGEBYSCORE', held, '-inf', string.format('%.0f', now))
        if redis.call('ZSCORE', held, hold) then
            return {1, string.format('%.0f', strict and patience or 0), 0}
        end
        local free = number - redis.call('ZCARD', held)
        local average = tonumber(kept[3] or 0)
        if average == 0 then
            average = 100000
        end
        one.step = average / number
        local is_due = promised and promised <= now + EARLY
        if is_due then
            one.granted = free > 0
        elseif free > 0 then
            local before = 0
            if waiting > 0 then
                before = ahead(line, '(' .. string.format('%.0f', now + average))
                if promised and promised < now + average then
                    before = before - 1
                end
            end
            one.granted = free > before
        end
        if not one.granted then
            if free <= 0 then
                average = math.max(average, math.min(now - tonumber(kept[4] or 0), LAPSE))
            end
            local share = average / number
            local before = 0
            if waiting > 0 then
                before = promised and rank(line, order) or ahead(line, '+inf')
            end
            one.at = now + math.min(math.max(share / 2, 100000), 2000000) + before * share * 0.9
            one.is_new = true
            if promised and not is_due and promised <= one.at then
                one.at, one.is_new = promised, false
            end
        end
    end
    all = all and one.granted
    answers[at] = one
end

if all then
    local latest = now
    for at = 1, count do
        latest = math.max(latest, answers[at].at)
    end
    for at = 1, count do
        local facts, line, order, held = KEYS[at * 4 - 3], KEYS[at * 4 - 2], KEYS[at * 4 - 1], KEYS[at * 4]
        local one = answers[at]
        if one.promised then
            redis.call('ZREM', line, job)
            redis.call('ZREM', order, job)
        end
        if ARGV[at * 3 + 2] ~= 'places' then
            local others = one.waiting - (one.promised and 1 or 0)
            local missed = others > 0 and ahead(line, '+inf') > 0 and MISSED or 0
            local arrival = math.max(one.arrival, now - missed) + one.step
            local peak = math.max(one.peak, now) + one.step * 0.8
            if ARGV[at * 3 + 2] == 'strict' then
                arrival = math.max(one.arrival, latest) + one.step
                peak = arrival
            end
            redis.call('HSET', facts, 'arrival', string.format('%.3f', arrival),
                'peak', string.format('%.3f', peak))
            redis.call('PEXPIRE', facts, string.format('%.0f', (math.max(arrival, one.spill) - now + HOUR) / 1000))
        else
            redis.call('ZADD', held, string.format('%.0f', now + lease), hold)
            redis.call('PEXPIRE', held, string.format('%.0f', lease / 1000 + 60000))
            redis.call('HSET', facts, 'last', string.format('%.0f', now))
            redis.call('PEXPIRE', facts, string.format('%.0f', (math.max(now, one.spill) - now + HOUR) / 1000))
        end
    end
    return {1, string.format('%.0f', latest - now), 0}
end

local latest, which = now, 0
for at = 1, count do
    local facts, line, order, one = KEYS[at * 4 - 3], KEYS[at * 4 - 2], KEYS[at * 4 - 1], answers[at]
    if not one.granted then
        if one.is_new then
            if one.promised or one.waiting < 10000 then
                redis.call('ZADD', line, string.format('%.0f', one.at), job)
                if not one.promised then
                    local last = redis.call('ZREVRANGE', order, 0, 0, 'WITHSCORES')[2]
                    redis.call('ZADD', order, string.format('%.0f', (last or 0) + 1), job)
                end
                local left = math.ceil((one.at - now + LAPSE) / 1000)
                if redis.call('PTTL', line) < left then
                    redis.call('PEXPIRE', line, string.format('%.0f', left))
                    redis.call('PEXPIRE', order, string.format('%.0f', left))
                end
            else
                one.at = math.max(one.spill, one.at) + one.step
                redis.call('HSET', facts, 'spill', string.format('%.0f', one.at))
                redis.call('PEXPIRE', facts,
                    string.format('%.0f', (math.max(one.at, one.arrival) - now + HOUR) / 1000))
            end
        end
        local at_latest = one.at
        if ARGV[at * 3 + 2] == 'places' then
            at_latest = math.min(at_latest, now + 120000000)
        end
        if at_latest > latest then
            latest, which = at_latest, at
        end
    end
end
local reply = {0, string.format('%.0f', math.min(latest - now, 900000000)), which}
if which > 0 and ARGV[which * 3 + 2] == 'places' then
    for _, name in ipairs(redis.call('ZRANGE', KEYS[which * 4], 0, 15)) do
        reply[#reply + 1] = name
    end
end
return reply
