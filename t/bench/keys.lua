-- For wrk: requests for one of many keys, at random.
-- wrk -s keys.lua URL -- PATH KEYS

function init(args)
    local head, keys = 'GET ' .. args[1] .. '?key=', tonumber(args[2])
    local tail = ' HTTP/1.1\r\nHost: bench\r\n\r\n'
    local random = math.random

    math.randomseed(os.time())

    request = function()
        return head .. random(keys) .. tail
    end
end
