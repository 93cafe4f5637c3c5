-- Distinct values in a sliding window: one shard of a key, a sorted set of values by when they were last seen.
-- KEYS[1]  sub-key, the only key touched
-- ARGV     1 mode (0 look, 1 clear, 2 add) | 2 window, us | 3.. values, 1024 at the most
-- reply    {version, status, now, count, fresh}

local VERSION, DONE, MOVED = 1, 0, 77
local CLEAR, ADD = '1', '2'
local MOST_AHEAD = 1024

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local window = tonumber(ARGV[2])
local stamp, oldest = string.format('%.0f', now), string.format('%.0f', now - window)
local life = string.format('%.0f', math.ceil(window / 1000) + 1000)
-- What a key leaves behind that has moved to another server of a ring is a string.
local count = redis.pcall('ZCOUNT', KEYS[1], '(' .. oldest, '+inf')
if type(count) == 'table' then
  local stored = redis.pcall('GET', KEYS[1])
  if type(stored) == 'string' and string.byte(stored) == MOVED then
    return redis.error_reply('SHARDLIMIT state of version ' .. MOVED .. ', this script knows ' .. VERSION)
  end
  return count
end
-- Seen by a clock that was far ahead: as if seen now, or they would count until it is as late as it was then. A part of
-- them at a time; the others have their turn with the next runs.
local later = '(' .. string.format('%.0f', now + window)
local ahead = redis.call('ZRANGE', KEYS[1], later, '+inf', 'BYSCORE', 'LIMIT', 0, MOST_AHEAD)
if #ahead > 0 then
  local again = {}
  for _, value in ipairs(ahead) do
    again[#again + 1] = stamp
    again[#again + 1] = value
  end
  redis.call('PEXPIRE', KEYS[1], life)
  redis.call('ZADD', KEYS[1], 'XX', unpack(again))
end
local fresh = 0
if redis.call('PTTL', KEYS[1]) == -1 then
  -- Somebody made it live for ever.
  redis.call('PEXPIRE', KEYS[1], life)
end
if ARGV[1] == CLEAR then
  redis.call('PEXPIRE', KEYS[1], 0)
  count = 0
elseif ARGV[1] == ADD then
  -- There is no command that makes a sorted set together with its end. So its end comes first: a server that would
  -- refuse it refuses it here, before there is anything without one.
  redis.call('PEXPIRE', KEYS[1], life)
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', oldest)
  local seen = {}
  for arg = 3, #ARGV do
    seen[#seen + 1] = stamp
    seen[#seen + 1] = ARGV[arg]
  end
  -- A clock that was set back makes nothing older than it is.
  fresh = redis.call('ZADD', KEYS[1], 'GT', unpack(seen))
  redis.call('PEXPIRE', KEYS[1], life)
  count = redis.call('ZCOUNT', KEYS[1], '(' .. oldest, '+inf')
end
return {VERSION, DONE, now, count, fresh}
