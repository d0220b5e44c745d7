-- ARGV: the keys of some nodes that nothing is before.
-- include flows/flow
if not ttl then
    return 0
end
for _, key in ipairs(ARGV) do
    evaluate(find(key), true)
    call('SREM', F .. ':redo', key)
end
keep()
return 1
