-- include flows/flow
if call('HGET', F, 'is_open') ~= '1' then
    return 0
end
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
