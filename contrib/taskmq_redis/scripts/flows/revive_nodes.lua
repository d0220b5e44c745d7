-- ARGV: keys.
-- include flows/flow
if call('HGET', F, 'is_open') ~= '1' then
    return 0
end
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
