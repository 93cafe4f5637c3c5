-- A sub-key leaves a server of a ring for another one. What stays says so to clients that have not heard of it.
-- KEYS[1]  sub-key, the only key written
-- ARGV     1 number, 2 mark of the record that the change began with | 3 least ttl of what stays, ms
--          | 4 the record's key | 5 number of the record that the caller knows
-- reply    {version, kind, expires at, ms, content}; kind 0: nothing was there

local VERSION, MOVED = 1, 77
local NOTHING, STRING, DUMP = 0, 1, 2
-- mark of what has left, number and mark of the change, kind, expires at; then as many bytes as any script reads ahead
local HEAD, AHEAD = '<Bi8i8Bi8', 40

local record = redis.call('GET', ARGV[4])
if record and tonumber(string.match(record, '\nnumber (%d+) ') or 0) > tonumber(ARGV[5]) then
  return redis.error_reply('SHARDLIMITRING has changed')
end

local number, mark = tonumber(ARGV[1]), tonumber(ARGV[2])
local kind, content = NOTHING, ''
local ttl = redis.call('PTTL', KEYS[1])
local is = redis.call('TYPE', KEYS[1]).ok
if is == 'string' then
  kind, content = STRING, redis.call('GET', KEYS[1])
  if string.byte(content) == MOVED then
    local _, in_number, by_mark, was, expires, at = struct.unpack(HEAD, content)
    if in_number == number and by_mark == mark then
      -- Done before, by somebody who may not have come to the end of it.
      return {VERSION, was, expires, string.sub(content, at + AHEAD)}
    end
    -- Of an earlier change: what it held is elsewhere long ago.
    kind, content, ttl = NOTHING, '', 0
  end
elseif is ~= 'none' then
  kind, content = DUMP, redis.call('DUMP', KEYS[1])
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- Without an end: -1.
local expires = ttl < 0 and kind ~= NOTHING and -1 or now + math.max(ttl, 0)
local stays = struct.pack(HEAD, MOVED, number, mark, kind, expires) .. string.rep('\0', AHEAD) .. content
redis.call('SET', KEYS[1], stays, 'PX', string.format('%.0f', math.max(ttl, tonumber(ARGV[3]))))
return {VERSION, kind, expires, content}
