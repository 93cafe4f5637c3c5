-- One shard of a counter: the kernel of src/counter/kernel.rs.
-- KEYS[1]  sub-key, the only key touched
-- ARGV     1 mode (0 look, 1 reset, 2 add) | 2 ttl, us | 3 renew (0, 1) | 4 horizon, us
--          | 5 shards of the key | 6 adds a second from which it is hot
--          | then, to add: 7 not after, us | 8 client | 9 number | 10 amount | 11 bound or ''
--          | 12 until when the key's first shard counts, us, or '' if this is that one
-- reply    {version, status, now, total, hot (0, 1), until when it counts or 0}

local VERSION, KERNEL, LARGEST = 1, 16, 9007199254740991
local DONE, ABOVE, OVERFLOW, LATE, CROWDED, OVER = 0, 1, 2, 3, 4, 5
local LOOK, RESET = '0', '1'
-- version, kernel, total, until when it counts, the latest instant decided at, horizon;
-- since when adds are counted, their number, and whether the key is hot
local HEAD = '<BBi8i8i8i8i8i4B'
-- Adds are counted for so long at the least, us.
local BEAT = 500000
-- client, its last number, when, and what became of it; the latest comes last
local ENTRY, SIZE, MOST = '<c8i8i8B', 25, 1024

local stored = redis.call('GET', KEYS[1])
local total, ends, seen, horizon, entries = 0, 0, 0, tonumber(ARGV[4]), ''
local since, adds, hot = 0, 0, 0
if stored then
  local version = string.byte(stored, 1)
  if version ~= VERSION then
    return redis.error_reply('SHARDLIMIT state of version ' .. version .. ', this script knows ' .. VERSION)
  end
  local _, kernel, t, e, s, h, since_then, added, was_hot, rest = struct.unpack(HEAD, stored)
  if kernel ~= KERNEL then
    return redis.error_reply('SHARDLIMIT state of kernel ' .. kernel .. ', this script knows ' .. KERNEL)
  end
  -- Nobody's number is forgotten sooner than he counts on.
  total, ends, seen, horizon, entries = t, e, s, math.max(h, horizon), string.sub(stored, rest)
  since, adds, hot = since_then, added, was_hot
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ttl, shards = tonumber(ARGV[2]), tonumber(ARGV[5])
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
-- Of several shards all end when the first one does, by its clock: that may be ahead.
local latest = at + ttl + (shards > 1 and horizon or 0)
if ends > latest then
  ends = at + ttl
end
if ends <= at then
  total = 0
end

local function reply(status)
  return {VERSION, status, now, total, hot, ends > at and ends or 0}
end
if ARGV[1] == LOOK or (ARGV[1] == RESET and not stored) then
  return reply(DONE)
end

-- Written last, and at once.
local function write()
  local life = math.ceil(math.max(ends - at, horizon) / 1000) + 1000
  local head = struct.pack(HEAD, VERSION, KERNEL, total, ends, at, horizon, since, adds, hot)
  redis.call('SET', KEYS[1], head .. entries, 'PX', string.format('%.0f', life))
end

if ARGV[1] == RESET then
  -- One of several goes on until all of them end.
  total, ends = 0, shards > 1 and ends or 0
  write()
  return reply(DONE)
end

local not_after, client, number, amount = tonumber(ARGV[7]), ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[10])
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

if ARGV[12] ~= '' then
  local told = tonumber(ARGV[12])
  -- Behind, or so far ahead that the clocks can't be right.
  if told <= at or told < ends or told > latest then
    return reply(OVER)
  end
  if told > ends then
    total, ends = 0, told
  end
end
local sum = total + amount
if math.abs(sum) > LARGEST then
  return reply(OVERFLOW)
end
local verdict = DONE
if ARGV[11] ~= '' and sum > tonumber(ARGV[11]) then
  verdict = ABOVE
else
  if ends <= at or ARGV[3] == '1' then
    ends = at + ttl
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
