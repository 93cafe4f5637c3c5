-- One shard of a counter: the kernel of src/counter/kernel.rs.
-- KEYS[1]  sub-key, the only key touched
-- ARGV     1 mode (0 look, 1 reset, 2 add) | 2 ttl, us | 3 renew (0, 1) | 4 horizon, us
--          | 5 shards of the key | 6 adds a second from which it is hot | 7 is its first one (0, 1)
--          | then, to add: 8 not after, us | 9 client | 10 number | 11 amount | 12 bound or ''
--          | and to another than the first: 13 generation that the first one counts | 14 until when, us
-- reply    {version, status, now, total, hot (0, 1), generation, until when it counts}; a first one that has ended
--          says 0 for both

local VERSION, KERNEL, LARGEST = 1, 16, 9007199254740991
local DONE, ABOVE, OVERFLOW, LATE, CROWDED, OVER = 0, 1, 2, 3, 4, 5
local LOOK, RESET = '0', '1'
-- version, kernel, total, until when it counts (another than the first: is kept), generation, the latest instant
-- decided at, horizon; since when adds are counted, their number, and whether the key is hot
local HEAD = '<BBi8i8i8i8i8i8i4B'
-- Adds are counted for so long at the least, us.
local BEAT = 500000
-- client, its last number, when, and what became of it; the latest comes last
local ENTRY, SIZE, MOST = '<c8i8i8B', 25, 1024

local stored = redis.call('GET', KEYS[1])
local total, ends, generation, seen, horizon, entries = 0, 0, 0, 0, tonumber(ARGV[4]), ''
local since, adds, hot = 0, 0, 0
if stored then
  local version = string.byte(stored, 1)
  if version ~= VERSION then
    return redis.error_reply('SHARDLIMIT state of version ' .. version .. ', this script knows ' .. VERSION)
  end
  local _, kernel, t, e, g, s, h, since_then, added, was_hot, rest = struct.unpack(HEAD, stored)
  if kernel ~= KERNEL then
    return redis.error_reply('SHARDLIMIT state of kernel ' .. kernel .. ', this script knows ' .. KERNEL)
  end
  -- Nobody's number is forgotten sooner than he counts on.
  total, ends, generation, seen, horizon = t, e, g, s, math.max(h, horizon)
  entries = string.sub(stored, rest)
  since, adds, hot = since_then, added, was_hot
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ttl, shards, is_first = tonumber(ARGV[2]), tonumber(ARGV[5]), ARGV[7] == '1'
-- Behind by up to the horizon: time stands still. By more: set back for good, and all are as if just heard of.
local at = now
if seen > now then
  if seen - now <= horizon then
    at = seen
  else
    local heard = {}
    for from = 1, #entries, SIZE do
      local client, number, _, verdict = struct.unpack(ENTRY, entries, from)
      heard[#heard + 1] = struct.pack(ENTRY, client, number, now, verdict)
    end
    entries = table.concat(heard)
  end
end
-- Only the first shard's clock says when a key ends. The others are kept for longer, by clocks of their own, and say
-- what they have.
local latest = at + ttl + (is_first and 0 or horizon)
ends = math.min(ends, latest)
if is_first and ends <= at then
  total = 0
end

local function reply(status)
  if is_first and ends <= at then
    return {VERSION, status, now, total, hot, 0, 0}
  end
  return {VERSION, status, now, total, hot, generation, ends}
end
local function life()
  return string.format('%.0f', math.ceil(math.max(ends - at, horizon) / 1000) + 1000)
end
if ARGV[1] == LOOK or (ARGV[1] == RESET and not stored) then
  -- Somebody made it live for ever.
  if stored and redis.call('PTTL', KEYS[1]) == -1 then
    redis.call('SET', KEYS[1], stored, 'PX', life())
  end
  return reply(DONE)
end

-- Written last, and at once.
local function write()
  local head = struct.pack(HEAD, VERSION, KERNEL, total, ends, generation, at, horizon, since, adds, hot)
  redis.call('SET', KEYS[1], head .. entries, 'PX', life())
end

if ARGV[1] == RESET then
  -- One of several goes on until all of them end.
  total, ends = 0, shards > 1 and ends or 0
  write()
  return reply(DONE)
end

local not_after, client, number, amount = tonumber(ARGV[8]), ARGV[9], tonumber(ARGV[10]), tonumber(ARGV[11])
-- A copy that comes later than its number is remembered could be counted twice; one that claims to have longer, too.
if now > not_after or not_after > now + tonumber(ARGV[4]) then
  return reply(LATE)
end
local first = 1
while first <= #entries do
  local _, _, heard = struct.unpack(ENTRY, entries, first)
  if at - heard < horizon then
    break
  end
  first = first + SIZE
end
entries = string.sub(entries, first)

local found = string.find(entries, client, 1, true)
while found and (found - 1) % SIZE ~= 0 do
  found = string.find(entries, client, found + 1, true)
end
if found then
  local _, last, _, verdict = struct.unpack(ENTRY, entries, found)
  if number <= last then
    return reply(verdict)
  end
  entries = string.sub(entries, 1, found - 1) .. string.sub(entries, found + SIZE)
elseif #entries >= MOST * SIZE then
  return reply(CROWDED)
end

if not is_first then
  local told = tonumber(ARGV[13])
  -- By this clock it is over, which may be wrong: the first one knows. Or that one has begun anew.
  if tonumber(ARGV[14]) <= at or told < generation then
    return reply(OVER)
  end
  if told > generation then
    total, generation = 0, told
  end
end
local sum = total + amount
if math.abs(sum) > LARGEST then
  return reply(OVERFLOW)
end
local verdict = DONE
if ARGV[12] ~= '' and sum > tonumber(ARGV[12]) then
  verdict = ABOVE
else
  if is_first and ends <= at then
    generation = math.max(at, generation + 1)
  end
  -- The first one ends a ttl from now at the latest, whatever its clock says now.
  if not is_first or ends <= at or ARGV[3] == '1' then
    ends = latest
  end
  total = sum
end
entries = entries .. struct.pack(ENTRY, client, number, at, verdict)
-- The clients of a hot key spread over its shards, and then each has a part of what there is.
if shards > 1 then
  if now - since >= BEAT or now < since then
    local load = math.floor(adds * 1000000 / math.max(now - since, BEAT))
    local from = tonumber(ARGV[6])
    local is_hot = load >= from or (hot == 1 and load * shards * 4 >= from)
    since, adds, hot = now, 0, is_hot and 1 or 0
  end
  adds = adds + 1
end
write()
return reply(verdict)
