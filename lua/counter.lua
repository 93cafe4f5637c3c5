-- One shard of a counter: the kernel of src/counter/kernel.rs.
-- KEYS[1]  sub-key, the only key touched
-- ARGV     1 mode (0 look, 1 reset, 2 add) | 2 ttl, us | 3 renew (0, 1) | 4 horizon, us
--          | then, to add: 5 not after, us | 6 client | 7 number | 8 amount | 9 bound or ''
-- reply    {version, status, now, total}

local VERSION, KERNEL, LARGEST = 1, 16, 9007199254740991
local DONE, ABOVE, OVERFLOW, LATE, CROWDED = 0, 1, 2, 3, 4
local LOOK, RESET = '0', '1'
-- version, kernel, total, until when it counts, the latest instant decided at, horizon
local HEAD = '<BBi8i8i8i8'
-- client, its last number, when, and what became of it; the latest comes last
local ENTRY, SIZE, MOST = '<c8i8i8B', 25, 1024

local stored = redis.call('GET', KEYS[1])
local total, ends, seen, horizon, entries = 0, 0, 0, tonumber(ARGV[4]), ''
if stored then
  local version = string.byte(stored, 1)
  if version ~= VERSION then
    return redis.error_reply('SHARDLIMIT state of version ' .. version .. ', this script knows ' .. VERSION)
  end
  local _, kernel, t, e, s, h, rest = struct.unpack(HEAD, stored)
  if kernel ~= KERNEL then
    return redis.error_reply('SHARDLIMIT state of kernel ' .. kernel .. ', this script knows ' .. KERNEL)
  end
  -- Nobody's number is forgotten sooner than he counts on.
  total, ends, seen, horizon, entries = t, e, s, math.max(h, horizon), string.sub(stored, rest)
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ttl = tonumber(ARGV[2])
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
ends = math.min(ends, at + ttl)
if ends <= at then
  total = 0
end
if ARGV[1] == LOOK or (ARGV[1] == RESET and not stored) then
  return {VERSION, DONE, now, total}
end

-- Written last, and at once.
local function write()
  local life = math.ceil(math.max(ends - at, horizon) / 1000) + 1000
  local head = struct.pack(HEAD, VERSION, KERNEL, total, ends, at, horizon)
  redis.call('SET', KEYS[1], head .. entries, 'PX', string.format('%.0f', life))
end

if ARGV[1] == RESET then
  total, ends = 0, 0
  write()
  return {VERSION, DONE, now, total}
end

local not_after, client, number, amount = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
-- A copy that comes later than its number is remembered could be counted twice; one that claims to have longer, too.
if now > not_after or not_after > now + tonumber(ARGV[4]) then
  return {VERSION, LATE, now, total}
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
    return {VERSION, verdict, now, total}
  end
  entries = string.sub(entries, 1, found - 1) .. string.sub(entries, found + SIZE)
elseif #entries >= MOST * SIZE then
  return {VERSION, CROWDED, now, total}
end

local sum = total + amount
if math.abs(sum) > LARGEST then
  return {VERSION, OVERFLOW, now, total}
end
local verdict = DONE
if ARGV[9] ~= '' and sum > tonumber(ARGV[9]) then
  verdict = ABOVE
else
  if ends <= at or ARGV[3] == '1' then
    ends = at + ttl
  end
  total = sum
end
entries = entries .. struct.pack(ENTRY, client, number, at, verdict)
write()
return {VERSION, verdict, now, total}
