-- ARGV: reason.
-- include flows/flow
if call('HGET', F, 'is_open') ~= '1' then
    return 0
end
call('HSET', F, 'cancelled', ARGV[1])
keep_all()
return 1
