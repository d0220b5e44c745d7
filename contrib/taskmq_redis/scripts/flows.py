"""The Lua scripts of workflows: `taskmq.workflow.model.state_machine` and `steps`, once more, where the nodes are.

All keys of a flow have its id as their hash tag and begin with KEYS[1], from which the others are made:

    KEYS[1]   head, ttl, started, run, token, cancelled, is_open, is_redriving
    :graph    r:KEY what a node is, c:KEY its call, o:KEY/N the nodes after it in pieces, t:KEY how many children,
              n:KEY/NAME the first of the children that a batch was given under a name, n:KEY/ that of its next ones
    :states :values :claims   by node; a claim is its token, until when, and its owner
    :open :bad   the nodes that have not ended, and those that have without success
    :visits   nodes whose followers are to be visited, by the piece where to go on
    :outbox :takers   what is to be published, until when it is leased, and by whom
    :ends     what has ended, in that order
    :more     the names of those below, so that they live as long as the flow
    :in:KEY   how those before a node have ended, where there are several; :kids:KEY the same for children of a map
    :lane:KEY :inside:KEY   children of a map that wait for their turn, and those that have it

A child's key is its map's, a dot and a number; what it is follows from that. No script does more than some hundred
steps of work, so none holds up the server.
"""

from typing import Final

from taskmq_redis.scripts.state import Script

__all__ = [
    "APPEND_NODES",
    "CREATE_FLOW",
    "DONE_NODES",
    "END_NODE",
    "EXPAND_NODE",
    "FLOW",
    "IF_OPEN",
    "OPEN_FLOW",
    "PUT_NODES",
    "RELEASE_NODE",
    "RENEW_NODE",
    "REOPEN_NODES",
    "START_NODE",
    "TAKE_NODES",
]

FLOW: Final = """
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

-- A sixteenth more than is promised, so that not every step has to prolong everything.
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

-- These three come and go; of the others that are not there from the start it is counted whether there is a new one.
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
    local kept = call('HMGET', G, 'r:' .. (map or key), 't:' .. key)
    if not kept[1] then
        return nil
    end
    local kind, rule, count, limit, before = string.match(kept[1], '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
    if map then
        kind, rule, count = 'call', 'all', 0
    end
    return {
        key = key, map = map, kind = kind, rule = rule, count = tonumber(count), limit = tonumber(limit),
        before = before, total = tonumber(kept[2]), state = call('HGET', S, key)
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
        return call('HLEN', F .. ':kids:' .. node.key) == node.total
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
"""
IF_OPEN: Final = """
if call('HGET', F, 'is_open') ~= '1' then
    return %s
end
"""

# ARGV: head, ttl. When it was made; 0 where it is there already.
CREATE_FLOW: Final = Script("""
if redis.call('HGET', KEYS[1], 'is_open') == '1' then
    return 0
end
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], 'head', ARGV[1], 'ttl', ARGV[2], 'run', '0', 'token', '0')
redis.call('HSETNX', KEYS[1], 'started', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return tonumber(redis.call('HGET', KEYS[1], 'started'))
""")

# ARGV: how many fields of the graph, those, then the new nodes' keys.
PUT_NODES: Final = Script(
    FLOW
    + """
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
"""
)

# ARGV: the keys of some nodes that nothing is before.
REOPEN_NODES: Final = Script(
    FLOW
    + """
if not ttl then
    return 0
end
for _, key in ipairs(ARGV) do
    evaluate(find(key), true)
    call('SREM', F .. ':redo', key)
end
keep()
return 1
"""
)
OPEN_FLOW: Final = Script(
    FLOW
    + """
if not ttl then
    return 0
end
if call('SCARD', O) == 0 and call('LLEN', E) == 0 then
    offer('.')
end
call('HSET', F, 'is_open', '1')
keep()
return 1
"""
)

# ARGV: node, owner, ms, whether the runner of now has lost it.
START_NODE: Final = Script(
    FLOW
    + IF_OPEN % "{}"
    + """
local key = ARGV[1]
local state = call('HGET', S, key)
if not state then
    return {}
end
if ENDED[state] then
    return {'ended', state, call('HGET', V, key) or ''}
end
if state == 'waiting' then
    return {'busy', '5000'}
end
local token, till, owner = claim_of(key)
if token and till > now and owner ~= ARGV[2] and ARGV[4] ~= '1' then
    return {'busy', number(till - now)}
end
if not token or till <= now or owner ~= ARGV[2] then
    token = number(call('HINCRBY', F, 'token', 1))
    call('HSET', C, key, token .. ' ' .. number(now + ARGV[3]) .. ' ' .. ARGV[2])
    keep()
end
return {'begun', token, call('HGET', G, 'c:' .. key) or ''}
"""
)

# ARGV: node, token, ms. Here and below `keep` comes first: it adds nothing, so Redis takes the rest also where its
# memory is full.
RENEW_NODE: Final = Script(
    FLOW
    + IF_OPEN % "0"
    + """
local token, till, owner = claim_of(ARGV[1])
if token ~= ARGV[2] or ENDED[call('HGET', S, ARGV[1])] then
    return 0
end
keep()
call('HSET', C, ARGV[1], token .. ' ' .. number(now + ARGV[3]) .. ' ' .. owner)
return 1
"""
)
RELEASE_NODE: Final = Script(
    FLOW
    + IF_OPEN % "0"
    + """
local token, till, owner = claim_of(ARGV[1])
if token == ARGV[2] then
    keep()
    call('HSET', C, ARGV[1], token .. ' 0 ' .. owner)
end
return 1
"""
)

# ARGV: taker, ms, node, token, state, value.
END_NODE: Final = Script(
    FLOW
    + IF_OPEN % "{}"
    + """
local key = ARGV[3]
local state = call('HGET', S, key)
if not state then
    return {}
end
local token, till, owner = claim_of(key)
if ARGV[4] == '0' then
    if token and till > now then
        return {}
    end
elseif token ~= ARGV[4] then
    return {}
end
if ENDED[state] then
    if state ~= ARGV[5] then
        return {}
    end
    return take(ARGV[1], ARGV[2], '1')
end
call('HSET', V, key, ARGV[6])
if token then
    call('HSET', C, key, token .. ' 0 ' .. owner)
end
end_node(find(key), ARGV[5])
return take(ARGV[1], ARGV[2], '0')
"""
)

# ARGV: taker, ms, whether it may have taken before.
TAKE_NODES: Final = Script(FLOW + IF_OPEN % "{}" + "return take(ARGV[1], ARGV[2], ARGV[3])")

# ARGV: taker, ms, keys.
DONE_NODES: Final = Script(
    FLOW
    + IF_OPEN % "{}"
    + """
for at = 3, #ARGV do
    withdraw(ARGV[at])
end
return take(ARGV[1], ARGV[2], '0')
"""
)

# ARGV: node, name, whether these are the last, calls.
APPEND_NODES: Final = Script(
    FLOW
    + IF_OPEN % "-1"
    + """
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
"""
)

# ARGV: node, number of the first child, total, calls.
EXPAND_NODE: Final = Script(
    FLOW
    + IF_OPEN % "0"
    + """
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
    call('HSET', V, key, ARGV[3])
    evaluate(find(key), true)
end
keep()
return 1
"""
)
