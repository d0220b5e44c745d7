-- include leases/lease
if left <= 0 then
    return {}
end
return {kept[1], kept[2], string.format('%.0f', left), kept[4]}
