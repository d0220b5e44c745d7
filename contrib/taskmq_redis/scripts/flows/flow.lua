-- Common part of all workflow scripts: a second implementation of `taskmq.workflow.model.state_machine` and
-- `transitions`, next to the nodes. `tests/integration/test_redis_flow_model.py` compares the two.
--
-- All keys of a flow have its id as their hash tag. KEYS[1] is the prefix of the others:
--
--     KEYS[1]   head, ttl, started, run, token, cancelled, is_open, is_redriving
--     :graph    r:KEY the node's description, c:KEY its call, o:KEY/N its followers in chunks, t:KEY the number of
--               children it is to have, k:KEY the present number if that differs, n:KEY/NAME the first child that a
--               batch received under a name, n:KEY/ the number of the next one
--     :states :values :claims   by node; a claim is its token, its expiry, and its owner
--     :open :bad   nodes that have not ended, and nodes that ended without success
--     :visits   nodes whose followers are yet to be visited, by the chunk to continue with
--     :outbox :takers   what is to be published, the end of its lease, and its taker
--     :ends     ended nodes, in order
--     :more     names of the keys below, so that they live as long as the flow
--     :in:KEY   end states of a node's predecessors, if there are several; :kids:KEY those of a map's children
--     :lane:KEY :inside:KEY   children of a map that wait for their turn, and those whose turn it is
--
-- A child's key is its map's key, a dot and a number, from which its properties follow. No script does more than a
-- few hundred steps, so none blocks the server.
local call, F = redis.call, KEYS[1]
local G, S, V, C, O, B = F .. ':graph', F .. ':states', F .. ':values', F .. ':claims', F .. ':open', F .. ':bad'
local T, X, W, E, M = F .. ':visits', F .. ':outbox', F .. ':takers', F .. ':ends', F .. ':more'
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ttl, kept = unpack(call('HMGET', F, 'ttl', 'kept'))
local ENDED = {succeeded = 1, failed = 2, upstream_failed = 2, skipped = 3, cancelled = 3}
local evaluate

local function number(value)
    return string.format('%.0f', value)
end

-- Keys live a sixteenth longer than promised, so that not every step has to extend them all.
local longer = ttl and number(ttl * 1.0625)

local function keep_all()
    for _, name in ipairs(call('SMEMBERS', M)) do
        call('PEXPIRE', name, longer)
    end
    for _, name in ipairs({F, G, S, V, C, O, B, T, X, W, E, M}) do
        call('PEXPIRE', name, longer)
    end
    call('HSET', F, 'kept', call('EXISTS', V, C, B, E, M))
end

-- These three come and go. For the other keys that do not exist from the start, a count tells whether one is new.
local function keep()
    for _, name in ipairs({X, W, T}) do
        call('PEXPIRE', name, longer)
    end
    if call('PTTL', F) < tonumber(ttl) or call('EXISTS', V, C, B, E, M) ~= tonumber(kept or '-1') then
        keep_all()
    end
end

local function more(name)
    if call('SADD', M, name) == 1 or call('PTTL', name) < 0 then
        call('PEXPIRE', name, longer)
    end
end

local function find(key)
    local map = string.match(key, '^(.+)%.%d+$')
    local kept = call('HMGET', G, 'r:' .. (map or key), 't:' .. key, 'k:' .. key)
    if not kept[1] then
        return nil
    end
    local kind, rule, count, limit, before = string.match(kept[1], '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
    if map then
        kind, rule, count = 'call', 'all', 0
    end
    return {
        key = key, map = map, kind = kind, rule = rule, count = tonumber(count), limit = tonumber(limit),
        before = before, total = tonumber(kept[2]), children = tonumber(kept[3]), state = call('HGET', S, key)
    }
end

local function offer(key)
    call('ZADD', X, 0, key)
    call('HDEL', W, key)
end

local function withdraw(key)
    call('ZREM', X, key)
    call('HDEL', W, key)
end

local function close(node)
    local key = node.key
    if node.map and node.limit > 0 then
        local lane, inside = F .. ':lane:' .. node.map, F .. ':inside:' .. node.map
        call('SREM', inside, key)
        while call('SCARD', inside) < node.limit do
            local following = call('LPOP', lane)
            if not following then
                break
            end
            if call('HGET', S, following) == 'ready' then
                call('SADD', inside, following)
                more(inside)
                offer(following)
            end
        end
    end
    call('SREM', O, key)
    if call('HGET', S, key) ~= 'succeeded' then
        call('SADD', B, key)
    end
    call('RPUSH', E, key)
    if call('SCARD', O) == 0 then
        offer('.')
    end
end

local function end_node(node, state)
    call('HSET', S, node.key, state)
    withdraw(node.key)
    call('ZADD', T, 0, node.key)
    close(node)
end

local function is_complete(node)
    if node.total then
        return call('HLEN', F .. ':kids:' .. node.key) == (node.children or node.total)
    end
    if node.count == 0 then
        return true
    end
    if node.count == 1 then
        return ENDED[call('HGET', S, node.before)] ~= nil
    end
    return call('HLEN', F .. ':in:' .. node.key) == node.count
end

local function tally(node)
    local states = {}
    if node.total then
        states = call('HVALS', F .. ':kids:' .. node.key)
    elseif node.count == 1 then
        states = {call('HGET', S, node.before)}
    elseif node.count > 1 then
        states = call('HVALS', F .. ':in:' .. node.key)
    end
    local found = {0, 0, 0}
    for _, state in ipairs(states) do
        local class = ENDED[state]
        if class then
            found[class] = found[class] + 1
        end
    end
    return found
end

local function decide(rule, found, complete)
    if rule == 'any' and found[1] > 0 then
        return 'ready'
    end
    if not complete then
        return 'waiting'
    end
    if rule == 'always' or (rule == 'none_failed' and found[2] == 0)
        or (rule == 'all' and found[2] == 0 and found[3] == 0) then
        return 'ready'
    end
    return found[2] > 0 and 'upstream_failed' or 'skipped'
end

evaluate = function(node, hit)
    local complete = is_complete(node)
    if node.total then
        if complete and node.state == 'ready' then
            end_node(node, tally(node)[1] == node.total and 'succeeded' or 'failed')
        end
        return
    end
    if node.state ~= 'waiting' or (not complete and not (hit and node.rule == 'any')) then
        return
    end
    local state = decide(node.rule, tally(node), complete)
    if state == 'waiting' then
        return
    end
    if state ~= 'ready' then
        end_node(node, state)
    elseif node.kind == 'join' then
        end_node(node, 'succeeded')
    elseif node.kind == 'batch' then
        call('HSET', S, node.key, 'ready')
    else
        call('HSET', S, node.key, 'ready')
        if not node.map or node.limit == 0 then
            offer(node.key)
            return
        end
        local lane, inside = F .. ':lane:' .. node.map, F .. ':inside:' .. node.map
        if call('SCARD', inside) < node.limit then
            call('SADD', inside, node.key)
            more(inside)
            offer(node.key)
        else
            call('RPUSH', lane, node.key)
            more(lane)
        end
    end
end

local function followers(key, piece)
    local map = string.match(key, '^(.+)%.%d+$')
    if map then
        return piece == 0 and {map} or {}
    end
    local found = {}
    for one in string.gmatch(call('HGET', G, 'o:' .. key .. '/' .. number(piece)) or '', '%S+') do
        found[#found + 1] = one
    end
    return found
end

local function arrive(node, before, state)
    local name
    if string.match(before, '^(.+)%.%d+$') == node.key then
        name = F .. ':kids:' .. node.key
    elseif node.count == 1 then
        return
    else
        name = F .. ':in:' .. node.key
    end
    call('HSET', name, before, state)
    more(name)
end

local function advance(budget)
    while true do
        local found = call('ZRANGE', T, 0, 0, 'WITHSCORES')
        if not found[1] then
            return false
        end
        if budget <= 0 then
            return true
        end
        local key, piece = found[1], tonumber(found[2])
        local state = call('HGET', S, key)
        local those = followers(key, piece)
        for _, follower in ipairs(those) do
            local node = find(follower)
            arrive(node, key, state)
            if not ENDED[node.state] then
                evaluate(node, state == 'succeeded')
            end
        end
        if #those == 0 then
            call('ZREM', T, key)
        else
            call('ZADD', T, piece + 1, key)
        end
        budget = budget - math.max(#those, 1)
    end
end

local function take(taker, lease, again)
    if again == '1' then
        local all = call('HGETALL', W)
        for at = 1, #all, 2 do
            if all[at + 1] == taker then
                offer(all[at])
            end
        end
    end
    local is_more = advance(100)
    local found = call('ZRANGEBYSCORE', X, '-inf', now, 'LIMIT', 0, 100)
    local answer = {is_more and '1' or '0', call('HGET', F, 'run')}
    if #found == 100 then
        answer[1] = '1'
    end
    for _, key in ipairs(found) do
        local kind, what
        if key == '.' then
            kind, what = 'finish', ''
        elseif call('HGET', S, key) == 'ready' then
            kind, what = find(key).kind, call('HGET', G, 'c:' .. key) or ''
        end
        if kind then
            call('ZADD', X, number(now + lease), key)
            call('HSET', W, key, taker)
            answer[#answer + 1] = key
            answer[#answer + 1] = kind
            answer[#answer + 1] = what
        else
            withdraw(key)
        end
    end
    keep()
    return answer
end

local function claim_of(key)
    local kept = call('HGET', C, key)
    if not kept then
        return nil, 0, nil
    end
    local token, till, owner = string.match(kept, '^(%S+) (%S+) (.*)$')
    return token, tonumber(till), owner
end
