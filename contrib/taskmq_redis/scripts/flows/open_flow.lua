-- include flows/flow
if not ttl then
    return 0
end
if call('SCARD', O) == 0 and call('LLEN', E) == 0 then
    offer('.')
end
call('HSET', F, 'is_open', '1')
keep()
return 1
