-- A sub-key arrives at another server of a ring.
-- KEYS[1]  sub-key, the only key written
-- ARGV     1 number of the record that the change began with | 2 the record's key
--          | 3 number of the record that the caller knows | 4 kind, 0 if nothing arrives
--          | 5 expires at, ms, or -1 | 6 content
-- reply    {version, status}; 0 it is there now, 1 it was there before, 2 nothing arrives, or its time is over

local VERSION, MOVED = 1, 77
local DONE, PRESENT, OVER = 0, 1, 2
local NOTHING, STRING = 0, 1

local record = redis.call('GET', ARGV[2])
if record and tonumber(string.match(record, '\nnumber (%d+) ') or 0) > tonumber(ARGV[3]) then
  return redis.error_reply('SHARDLIMITRING has changed')
end

local is = redis.call('TYPE', KEYS[1]).ok
if is == 'string' then
  -- What an earlier change left here is in the way; what is there by this one is used already.
  local stored = redis.call('GET', KEYS[1])
  if string.byte(stored) ~= MOVED or struct.unpack('<i8', stored, 2) > tonumber(ARGV[1]) then
    return {VERSION, PRESENT}
  end
elseif is ~= 'none' then
  return {VERSION, PRESENT}
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local kind, expires = tonumber(ARGV[4]), tonumber(ARGV[5])
if kind == NOTHING or (expires >= 0 and expires <= now) then
  redis.call('DEL', KEYS[1])
  return {VERSION, OVER}
end
-- One that had no end gets one: a day.
local ttl = string.format('%.0f', expires < 0 and 86400000 or expires - now)
if kind == STRING then
  redis.call('SET', KEYS[1], ARGV[6], 'PX', ttl)
else
  redis.call('RESTORE', KEYS[1], ttl, ARGV[6], 'REPLACE')
end
return {VERSION, DONE}
