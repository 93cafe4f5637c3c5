-- Events in several sliding windows of one key: the kernel of src/counter/windows.rs.
-- KEYS[1]  sub-key, the only key touched
-- ARGV     1 mode (0 look, 1 clear, 2 add) | 2 events | 3.. windows, us
-- reply    {version, status, now, count a window}

local VERSION, KERNEL, LARGEST, PARTS, MOST_RINGS = 1, 17, 9007199254740991, 64, 8
local DONE, OVERFLOW = 0, 2
local LOOK, CLEAR, ADD = '0', '1', '2'
-- version, kernel, the latest instant decided at, number of rings; of a ring: window, number of parts; of a part:
-- number, events
local HEAD, RING, PART, PART_SIZE = '<BBi8B', '<i8I2', '<i8i8', 16

local stored = redis.call('GET', KEYS[1])
-- Where the parts of each window lie, and which windows there are: what was asked for last comes first.
local rings, known, seen = {}, {}, 0
if stored then
  local version = string.byte(stored, 1)
  if version ~= VERSION then
    return redis.error_reply('SHARDLIMIT state of version ' .. version .. ', this script knows ' .. VERSION)
  end
  local _, kernel, s, count, from = struct.unpack(HEAD, stored)
  if kernel ~= KERNEL then
    return redis.error_reply('SHARDLIMIT state of kernel ' .. kernel .. ', this script knows ' .. KERNEL)
  end
  seen = s
  for _ = 1, count do
    local window, parts, first = struct.unpack(RING, stored, from)
    from = first + parts * PART_SIZE
    if not rings[window] then
      known[#known + 1] = window
    end
    rings[window] = {first, from}
  end
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local events = ARGV[1] == ADD and tonumber(ARGV[2]) or 0
local longest = math.max(0, unpack(known))
for arg = 3, #ARGV do
  longest = math.max(longest, tonumber(ARGV[arg]))
end
-- Behind by up to the longest window: time stands still. By more: set back for good, and it begins anew.
local at = now
if seen > now then
  if seen - now <= longest then
    at = seen
  else
    rings, known = {}, {}
  end
end
if ARGV[1] == CLEAR then
  rings, known = {}, {}
end

-- The parts of a window that count, how many events they have, and the last one.
local function counting(window, step)
  local count, parts = 0, {}
  local ring = rings[window] or {1, 1}
  local last, in_last
  for from = ring[1], ring[2] - 1, PART_SIZE do
    local number, n = struct.unpack(PART, stored, from)
    -- A part counts until its last microsecond is a window old.
    if (number + 1) * step > at - window then
      count, last, in_last = count + n, number, n
      parts[#parts + 1] = string.sub(stored, from, from + PART_SIZE - 1)
    end
  end
  return parts, count, last, in_last
end

local reply, new, asked, kept = {VERSION, DONE, now}, {}, {}, 0
for arg = 3, #ARGV do
  local window = tonumber(ARGV[arg])
  local step = math.ceil(window / PARTS)
  local part = math.floor(at / step)
  local parts, count, last, in_last = counting(window, step)
  if events > 0 then
    count = count + events
    if last == part then
      parts[#parts] = struct.pack(PART, part, in_last + events)
    else
      parts[#parts + 1] = struct.pack(PART, part, events)
    end
  end
  if count > LARGEST then
    return {VERSION, OVERFLOW, now}
  end
  reply[#reply + 1] = count
  new[#new + 1] = struct.pack(RING, window, #parts) .. table.concat(parts)
  asked[window], kept = true, math.max(kept, window)
end
local function life(window)
  return string.format('%.0f', math.ceil((window + math.ceil(window / PARTS)) / 1000) + 1000)
end
if ARGV[1] == LOOK and stored and redis.call('PTTL', KEYS[1]) == -1 then
  -- Somebody made it live for ever.
  redis.call('SET', KEYS[1], stored, 'PX', life(longest))
end
if events > 0 or (ARGV[1] == CLEAR and stored) then
  -- Other clients may ask for other windows: what still counts there stays, as far as there is room.
  for _, window in ipairs(known) do
    local parts = counting(window, math.ceil(window / PARTS))
    if not asked[window] and #parts > 0 and #new < MOST_RINGS then
      new[#new + 1] = struct.pack(RING, window, #parts) .. table.concat(parts)
      kept = math.max(kept, window)
    end
  end
  local head = struct.pack(HEAD, VERSION, KERNEL, at, #new)
  redis.call('SET', KEYS[1], head .. table.concat(new), 'PX', life(kept))
end
return reply
