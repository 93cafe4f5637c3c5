-- About how many distinct values: one part of a window, a HyperLogLog.
-- KEYS[1]  sub-key of the part, the only key touched
-- ARGV     1 mode (0 look, 1 clear, 2 add) | 2 number of the part | 3 its length, us | 4 ttl, ms
--          | 5.. values, 1024 at the most
-- reply    {version, status, now, the HyperLogLog or ''}

local VERSION, DONE, OTHER_PART = 1, 0, 1
local LOOK, CLEAR = '0', '1'

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if ARGV[1] == LOOK then
  if redis.call('PTTL', KEYS[1]) == -1 then
    -- Somebody made it live for ever.
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
  end
  return {VERSION, DONE, now, redis.call('GET', KEYS[1]) or ''}
end
if ARGV[1] == CLEAR then
  redis.call('PEXPIRE', KEYS[1], 0)
  return {VERSION, DONE, now, ''}
end
-- Which part it is, this clock decides.
if math.floor(now / tonumber(ARGV[3])) ~= tonumber(ARGV[2]) then
  return {VERSION, OTHER_PART, now, ''}
end
-- Its end comes first, as in distinct.lua.
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PFADD', KEYS[1], unpack(ARGV, 5))
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {VERSION, DONE, now, ''}
