-- For wrk: requests for one of many keys, at random.
-- wrk -s keys.lua URL -- PATH KEYS
-- The key takes the place of %s in the path, or else becomes its ?key=.

function init(args)
    local path, keys = args[1], tonumber(args[2])
    local head, tail = path:match('^(.*)%%s(.*)$')
    local random = math.random

    head = 'GET ' .. (head or path .. '?key=')
    tail = (tail or '') .. ' HTTP/1.1\r\nHost: bench\r\n\r\n'

    math.randomseed(os.time())

    request = function()
        return head .. random(keys) .. tail
    end
end
