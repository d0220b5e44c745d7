-- ARGV: keys of revived nodes. Nodes that need not wait become ready.
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
