-- A shard takes the share that home gave it, whatever its kernel.
-- KEYS[1]  lent sub-key, the only key touched
-- ARGV     1 packed sub-key | 2 not after, us of this server's clock | 3 ttl, ms
-- reply    {version, status, now}

local VERSION, DONE, NEWER, LATE = 1, 0, 1, 2
local HOME, LENT, BUCKET = 0, 1, 1
-- version, kernel, kind, id; an id begins with its stamp
local HEAD, STAMP = '<BBBc16', '<i8'

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local stored = redis.call('GET', KEYS[1])
if stored then
  local version, _, kind, id = struct.unpack(HEAD, stored)
  if version ~= VERSION then
    return redis.error_reply('SHARDLIMIT state of version ' .. version .. ', this script knows ' .. VERSION)
  end
  local _, _, _, new_id = struct.unpack(HEAD, ARGV[1])
  -- Done before, however long ago: calls may have charged it since.
  if kind == LENT and id == new_id then
    return {VERSION, DONE, now}
  end
  local stamp, new_stamp = struct.unpack(STAMP, id), struct.unpack(STAMP, new_id)
  if kind == HOME or stamp >= new_stamp then
    return {VERSION, NEWER, now}
  end
end
if now > tonumber(ARGV[2]) then
  return {VERSION, LATE, now}
end
-- A bucket begins to refill now: home's clock, by which it was packed, may be behind this one, and what the two differ
-- by would refill it. The instant is the last field of a lent bucket.
local state = ARGV[1]
if string.byte(state, 2) == BUCKET then
  state = string.sub(state, 1, -9) .. struct.pack('<i8', now)
end
redis.call('SET', KEYS[1], state, 'PX', ARGV[3])
return {VERSION, DONE, now}
