-- ARGV: taker, ms, whether it may have taken nodes before.
-- include flows/flow
if call('HGET', F, 'is_open') ~= '1' then
    return {}
end
return take(ARGV[1], ARGV[2], ARGV[3])
