-- Sliding window and sliding log on one sub-key: the kernel of src/kernel/sliding_window.rs.
-- KEYS[1]  sub-key, the only key touched
-- ARGV     1 id | 2 packed home to create or '' | 3 least ttl, ms | 4 mode (0, 1 reset, 2 touch) | 5 debt
--          | 6 number of refunds | permits,at,line a refund | permits,count an ask
-- reply    {version, status, id, ledger, now, at, level, missing, load, (granted, lack, line) an ask}
-- The parts stay packed: a run reads those that expire, the newest, and for a denial the oldest ones that would have to
-- go, each at most once, however many permits or asks a batch has.

local VERSION, KERNEL, NEVER = 1, 3, -1
local OK, STALE, OTHER_KERNEL = 0, 1, 2
local LENT, TOMBSTONE = 1, 2
local PLAIN, RESET = '0', '1'
-- version, kernel, kind, id, bytes ahead of the ledger; since when runs are counted, their number, and load before
local HEAD, BEAT = '<BBBc16I4i8I4I4', 500000
-- permits, window, step, seen, used, number of parts; then the parts
local BODY, PART, PART_SIZE = '<i8i8i8i8i8I4', '<i8i8', 16

local stored = redis.call('GET', KEYS[1])
local state = stored or ARGV[2]
if state == '' then
  return {VERSION, STALE, ''}
end
local version, kernel, kind, id, ledger_at, since, runs, load, body = struct.unpack(HEAD, state)
if version ~= VERSION then
  return redis.error_reply('SHARDLIMIT state of version ' .. version .. ', this script knows ' .. VERSION)
end
if kind == TOMBSTONE or (kind == LENT and id ~= ARGV[1]) then
  return {VERSION, STALE, id}
end
-- Only home has one.
local ledger = string.sub(state, ledger_at + 1)
if kernel ~= KERNEL then
  return {VERSION, OTHER_KERNEL, id, ledger}
end
-- Where another id than the caller's passes, it is that of home's ledger.
local news = id ~= ARGV[1]
local limit, window, step, seen, used, last, parts_at = struct.unpack(BODY, state, body)
local parts = string.sub(state, parts_at, ledger_at)

-- Parts are numbered from 1; those from `first` to `last` are alive.
local first = 1
local function part(number)
  return struct.unpack(PART, parts, (number - 1) * PART_SIZE + 1)
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local changed = ARGV[4] ~= PLAIN
if ARGV[4] == RESET then
  seen, used, first = 0, 0, last + 1
end

-- Behind by up to a window: time stands still. By more: the clock was set back for good.
local at = now
if seen > now and seen - now <= window then
  at = seen
end
-- Set back for good: also where nothing is granted, or what lies ahead counts as charged now again and again.
changed = changed or at < seen
local current = at - math.fmod(at, step)

local function gone_at(start)
  return start + step - 1 + window
end

-- The current part is kept apart from the others. What lies ahead of a clock set back for good counts as charged now.
local charged = 0
while last >= first do
  local start, permits = part(last)
  if start < current then
    break
  end
  charged, last = charged + permits, last - 1
end
while first <= last do
  local start, permits = part(first)
  if gone_at(start) > at then
    break
  end
  used, first = used - permits, first + 1
end

-- The part that begins at `start`, if there is one.
local function find(start)
  local low, high = first, last
  while low <= high do
    local middle = math.floor((low + high) / 2)
    local found = part(middle)
    if found == start then
      return middle
    elseif found < start then
      low = middle + 1
    else
      high = middle - 1
    end
  end
end

local next_arg = 7
for _ = 1, tonumber(ARGV[6]) do
  local permits, charged_at = tonumber(ARGV[next_arg]), tonumber(ARGV[next_arg + 1])
  local start = charged_at - math.fmod(charged_at, step)
  local back = 0
  if start == current then
    back = math.min(permits, charged)
    charged = charged - back
  else
    local number = find(start)
    if number then
      local _, had = part(number)
      back = math.min(permits, had)
      local left = had > back and struct.pack(PART, start, had - back) or ''
      parts = string.sub(parts, 1, (number - 1) * PART_SIZE) .. left .. string.sub(parts, number * PART_SIZE + 1)
      if left == '' then
        last = last - 1
      end
    end
  end
  used, changed = used - back, changed or back > 0
  next_arg = next_arg + 3
end

local debt = math.min(tonumber(ARGV[5]), math.max(2 * limit - used, 0))
if debt > 0 then
  used, charged, changed = used + debt, charged + debt, true
end

-- When so many permits have gone: each part is read once for all asks, and its running sum kept.
local sums, summed = {}, 0
local function gone_when(permits)
  while summed < permits and first + #sums <= last do
    local _, had = part(first + #sums)
    summed = summed + had
    sums[#sums + 1] = summed
  end
  if summed < permits then
    return gone_at(current)
  end
  local low, high = 1, #sums
  while low < high do
    local middle = math.floor((low + high) / 2)
    if sums[middle] < permits then
      low = middle + 1
    else
      high = middle
    end
  end
  return gone_at((part(first + low - 1)))
end

local reply = {VERSION, OK, id, news and ledger or '', now, at, 0, 0, 0}
for arg = next_arg, #ARGV, 2 do
  local permits, count = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1])
  local fits = math.floor(math.max(limit - used, 0) / permits)
  local granted = math.min(fits, count)
  used, charged = used + granted * permits, charged + granted * permits
  changed = changed or granted > 0
  local lack = 0
  if permits > limit then
    lack = NEVER
  elseif fits < math.max(count, 1) then
    lack = gone_when(used + permits - limit) - at
  end
  reply[#reply + 1] = granted
  reply[#reply + 1] = lack
  reply[#reply + 1] = 0
end

local missing = 0
if charged > 0 then
  missing = gone_at(current) - at
elseif last >= first then
  missing = gone_at((part(last))) - at
end
reply[7], reply[8] = limit - used, missing
-- Runs that write are what a master has to do for this key.
if now - since >= BEAT or now < since then
  load = math.floor(runs * 1000000 / math.max(now - since, BEAT))
  since, runs = now, 0
end
reply[9] = load
if changed then
  parts = string.sub(parts, (first - 1) * PART_SIZE + 1, last * PART_SIZE)
  if charged > 0 then
    parts = parts .. struct.pack(PART, current, charged)
  end
  local ttl = math.max(tonumber(ARGV[3]), math.ceil((at - now + missing) / 1000) + 1000)
  if stored and news then
    -- How long home must live only those know who know its ledger.
    ttl = math.max(ttl, redis.call('PTTL', KEYS[1]))
  end
  local new = struct.pack(BODY, limit, window, step, at, used, #parts / PART_SIZE) .. parts
  local head = struct.pack(HEAD, VERSION, KERNEL, kind, id, body - 1 + #new, since, runs + 1, load)
  redis.call('SET', KEYS[1], head .. new .. ledger, 'PX', string.format('%.0f', ttl))
end
return reply
