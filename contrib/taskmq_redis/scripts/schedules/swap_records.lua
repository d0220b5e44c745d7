-- For each key: the version before, and the new record. "" means that it is stored, by this call or an earlier one.
local answer = {}
for at = 1, #KEYS do
    local kept = redis.call('GET', KEYS[at])
    local version = kept and string.sub(kept, 1, 16) or ''
    local after = ARGV[2 * at + 1]
    if version == ARGV[2 * at] or version == string.sub(after, 1, 16) then
        redis.call('SET', KEYS[at], after, 'PX', ARGV[1])
        answer[at] = ''
    else
        answer[at] = kept
    end
end
return answer
