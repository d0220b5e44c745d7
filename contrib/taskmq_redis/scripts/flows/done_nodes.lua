-- ARGV: taker, ms, keys.
-- include flows/flow
if call('HGET', F, 'is_open') ~= '1' then
    return {}
end
for at = 3, #ARGV do
    withdraw(ARGV[at])
end
return take(ARGV[1], ARGV[2], '0')
