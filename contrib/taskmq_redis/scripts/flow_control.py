"""The Lua scripts that cancel workflows and drive them anew; see `flows`."""

from typing import Final

from taskmq_redis.scripts.flows import FLOW, IF_OPEN
from taskmq_redis.scripts.state import Script

__all__ = ["CANCEL_NODES", "MARK_CANCELLED", "REDRIVEN", "REDRIVE_FLOW", "REVIVE_NODES"]

# ARGV: reason.
MARK_CANCELLED: Final = Script(
    FLOW
    + IF_OPEN % "0"
    + """
call('HSET', F, 'cancelled', ARGV[1])
keep_all()
return 1
"""
)

# ARGV: reason, keys. The keys of those that run.
CANCEL_NODES: Final = Script(
    FLOW
    + IF_OPEN % "{}"
    + """
local running = {}
for at = 2, #ARGV do
    local key = ARGV[at]
    if not ENDED[call('HGET', S, key)] then
        local token, till = claim_of(key)
        if token and till > now then
            running[#running + 1] = key
        else
            call('HSET', V, key, ARGV[1])
            call('HSET', S, key, 'cancelled')
            withdraw(key)
            close(find(key))
        end
    end
end
keep_all()
return running
"""
)

REDRIVE_FLOW: Final = Script(
    FLOW
    + IF_OPEN % "0"
    + """
if call('HGET', F, 'is_redriving') == '1' then
    return 1
end
if call('SCARD', O) > 0 or call('SCARD', B) == 0 then
    return 0
end
call('HSET', F, 'is_redriving', '1')
call('HINCRBY', F, 'run', 1)
call('HDEL', F, 'cancelled')
withdraw('.')
keep_all()
return 1
"""
)

# ARGV: keys.
REVIVE_NODES: Final = Script(
    FLOW
    + IF_OPEN % "0"
    + """
for _, key in ipairs(ARGV) do
    if call('SREM', B, key) == 1 then
        local node = find(key)
        call('HSET', S, key, (node.total or node.kind == 'batch') and 'ready' or 'waiting')
        call('SADD', O, key)
        call('SADD', F .. ':redo', key)
        call('ZREM', T, key)
        local piece = 0
        while true do
            local those = followers(key, piece)
            if #those == 0 then
                break
            end
            for _, follower in ipairs(those) do
                call('HDEL', F .. (node.map and ':kids:' or ':in:') .. follower, key)
            end
            piece = piece + 1
        end
    end
end
more(F .. ':redo')
keep_all()
return 1
"""
)

REDRIVEN: Final = Script("""
redis.call('HDEL', KEYS[1], 'is_redriving')
return 1
""")
