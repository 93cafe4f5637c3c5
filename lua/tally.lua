-- What all clients admitted of one key lately, by cells of store time.
-- KEYS[1]  tally, the only key touched
-- ARGV     1 cells to keep | 2 ttl, ms | cell,permits each that is new
-- reply    {version, packed cells}

local VERSION = 1
-- cell number, permits
local CELL, SIZE = '<i8i8', 16

local stored = redis.call('GET', KEYS[1]) or string.char(VERSION)
if string.byte(stored) ~= VERSION then
  return redis.error_reply('SHARDLIMIT tally of version ' .. string.byte(stored) .. ', this script knows ' .. VERSION)
end
local permits, newest = {}, 0
for at = 2, #stored, SIZE do
  local cell, count = struct.unpack(CELL, stored, at)
  permits[cell] = count
  newest = math.max(newest, cell)
end
for arg = 3, #ARGV, 2 do
  local cell = tonumber(ARGV[arg])
  permits[cell] = (permits[cell] or 0) + tonumber(ARGV[arg + 1])
  newest = math.max(newest, cell)
end

local packed = {string.char(VERSION)}
for cell = newest - tonumber(ARGV[1]) + 1, newest do
  if permits[cell] then
    packed[#packed + 1] = struct.pack(CELL, cell, permits[cell])
  end
end
local state = table.concat(packed)
redis.call('SET', KEYS[1], state, 'PX', ARGV[2])
return {VERSION, state}
