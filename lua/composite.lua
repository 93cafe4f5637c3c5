-- Several limits on one sub-key, all or nothing: the kernel of src/kernel/composite.rs.
-- KEYS[1]  sub-key, the only key touched
-- ARGV     1 id | 2 packed home to create or '' | 3 least ttl, ms | 4 mode (0, 1 reset, 2 touch) | 5 debt
--          | 6 number of refunds | permits,at,line a refund | permits,count an ask
-- reply    {version, status, id, ledger, now, at, level, missing, load, (granted, lack, part) an ask}
-- Each part is as its own script has it, but for times, which are microseconds, and levels, which are permits.

local VERSION, KERNEL, NEVER = 1, 4, -1
local OK, STALE, OTHER_KERNEL = 0, 1, 2
local LENT, TOMBSTONE = 1, 2
local BUCKET, FIXED = 1, 2
local PLAIN, RESET = '0', '1'
-- version, kernel, kind, id, bytes ahead of the ledger; since when runs are counted, their number, and load before
local HEAD, BEAT = '<BBBc16I4i8I4I4', 500000
-- rate, cost, burst, paced, level, seen
local BUCKET_BODY = '<i8i8i8Bi8i8'
-- permits, window, start, used
local FIXED_BODY = '<i8i8i8i8'
-- permits, window, step, seen, used, number of charges; then the charges
local SLIDING_BODY, CHARGE, CHARGE_SIZE = '<i8i8i8i8i8I4', '<i8i8', 16

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

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local reset = ARGV[4] == RESET
local changed = ARGV[4] ~= PLAIN

-- When a part is decided, whose latest instant is `seen`. Behind by up to a refill: time stands still. By more: the
-- clock was set back for good, and that is written down also where nothing is granted.
local function steady(seen, refill)
  if seen > now and seen - now <= refill then
    return seen
  end
  return now
end

local function bucket(from)
  local rate, cost, burst, paced, level, seen, next_at = struct.unpack(BUCKET_BODY, state, from)
  local capacity = burst * cost
  local refill = math.ceil(capacity / math.max(rate, 1))
  if reset then
    level, seen = capacity, now
  end
  local part = {at = steady(seen, refill), most = burst}
  changed = changed or part.at < seen
  level = math.min(capacity, level + rate * math.min(math.max(part.at - seen, 0), 2 * refill))

  local function micros(units)
    return math.ceil(math.max(units, 0) / math.max(rate, 1))
  end
  function part.refund(permits)
    level = level + math.min(math.min(permits, burst) * cost, capacity - level)
    changed = true
  end
  function part.owe(permits)
    level = math.min(level, math.max(level - math.min(permits, 2 * burst) * cost, -capacity))
  end
  function part.level()
    return math.floor(level / cost)
  end
  function part.take(permits)
    level = level - permits * cost
  end
  function part.lack(permits)
    return micros(permits * cost - level)
  end
  function part.missing()
    return micros(capacity - level)
  end
  function part.pack()
    return struct.pack(BUCKET_BODY, rate, cost, burst, paced, level, part.at)
  end
  return part, next_at
end

local function fixed(from)
  local limit, window, start, used, next_at = struct.unpack(FIXED_BODY, state, from)
  local part = {at = steady(start, window), most = limit}
  local current = part.at - math.fmod(part.at, window)
  if start < current or reset then
    used = 0
  end
  changed = changed or current < start

  local rest = current + window - part.at
  function part.refund(permits, charged_at)
    if charged_at - math.fmod(charged_at, window) == current then
      used, changed = used - math.min(permits, used), true
    end
  end
  function part.owe(permits)
    used = used + math.min(permits, math.max(2 * limit - used, 0))
  end
  function part.level()
    return limit - used
  end
  function part.take(permits)
    used = used + permits
  end
  function part.lack(permits)
    return used + permits > limit and rest or 0
  end
  function part.missing()
    return used == 0 and 0 or rest
  end
  function part.pack()
    return struct.pack(FIXED_BODY, limit, window, current, used)
  end
  return part, next_at
end

local function sliding(from)
  local limit, window, step, seen, used, last, charges_at = struct.unpack(SLIDING_BODY, state, from)
  local charges = string.sub(state, charges_at, charges_at + last * CHARGE_SIZE - 1)
  local next_at = charges_at + last * CHARGE_SIZE
  -- Charges are numbered from 1; those from `first` to `last` are alive.
  local first = 1
  if reset then
    seen, used, first = 0, 0, last + 1
  end
  local part = {at = steady(seen, window), most = limit}
  changed = changed or part.at < seen
  local current = part.at - math.fmod(part.at, step)
  local function charge(number)
    return struct.unpack(CHARGE, charges, (number - 1) * CHARGE_SIZE + 1)
  end
  local function gone_at(start)
    return start + step - 1 + window
  end

  -- The current one is kept apart. What lies ahead of a clock set back for good counts as charged now.
  local charged = 0
  while last >= first do
    local start, permits = charge(last)
    if start < current then
      break
    end
    charged, last = charged + permits, last - 1
  end
  while first <= last do
    local start, permits = charge(first)
    if gone_at(start) > part.at then
      break
    end
    used, first = used - permits, first + 1
  end

  function part.refund(permits, charged_at)
    local start = charged_at - math.fmod(charged_at, step)
    local back = 0
    if start == current then
      back = math.min(permits, charged)
      charged = charged - back
    else
      local low, high = first, last
      while low < high do
        local middle = math.floor((low + high) / 2)
        if charge(middle) < start then
          low = middle + 1
        else
          high = middle
        end
      end
      if low <= last and charge(low) == start then
        local _, had = charge(low)
        back = math.min(permits, had)
        local left = had > back and struct.pack(CHARGE, start, had - back) or ''
        local at = (low - 1) * CHARGE_SIZE
        charges = string.sub(charges, 1, at) .. left .. string.sub(charges, at + CHARGE_SIZE + 1)
        if left == '' then
          last = last - 1
        end
      end
    end
    used, changed = used - back, changed or back > 0
  end
  function part.owe(permits)
    local debt = math.min(permits, math.max(2 * limit - used, 0))
    used, charged = used + debt, charged + debt
  end
  function part.level()
    return limit - used
  end
  function part.take(permits)
    used, charged = used + permits, charged + permits
  end
  function part.lack(permits)
    local surplus = used + permits - limit
    if surplus <= 0 then
      return 0
    end
    for number = first, last do
      local start, had = charge(number)
      surplus = surplus - had
      if surplus <= 0 then
        return gone_at(start) - part.at
      end
    end
    return gone_at(current) - part.at
  end
  function part.missing()
    if charged > 0 then
      return gone_at(current) - part.at
    elseif last >= first then
      return gone_at((charge(last))) - part.at
    end
    return 0
  end
  function part.pack()
    local alive = string.sub(charges, (first - 1) * CHARGE_SIZE + 1, last * CHARGE_SIZE)
    if charged > 0 then
      alive = alive .. struct.pack(CHARGE, current, charged)
    end
    return struct.pack(SLIDING_BODY, limit, window, step, part.at, used, #alive / CHARGE_SIZE) .. alive
  end
  return part, next_at
end

-- How many there are, then each behind its kernel.
local parts, kernels = {}, {}
local next_at = body + 1
for number = 1, string.byte(state, body) do
  kernels[number] = string.byte(state, next_at)
  local open = kernels[number] == BUCKET and bucket or kernels[number] == FIXED and fixed or sliding
  parts[number], next_at = open(next_at + 1)
end
-- The earliest: a refund by it finds what was charged then or before.
local at = parts[1].at
for _, part in ipairs(parts) do
  at = math.min(at, part.at)
end

local next_arg = 7
for _ = 1, tonumber(ARGV[6]) do
  for _, part in ipairs(parts) do
    part.refund(tonumber(ARGV[next_arg]), tonumber(ARGV[next_arg + 1]))
  end
  next_arg = next_arg + 3
end

local debt = tonumber(ARGV[5])
if debt > 0 then
  for _, part in ipairs(parts) do
    part.owe(debt)
  end
  changed = true
end

-- Permits that all parts have.
local function level()
  local least = parts[1].level()
  for _, part in ipairs(parts) do
    least = math.min(least, part.level())
  end
  return least
end

-- How long until one more such call could be granted, and the part that takes the longest, counted from 0.
local function lack(permits)
  local longest, which = 0, 0
  for number, part in ipairs(parts) do
    if permits > part.most then
      return NEVER, number - 1
    end
    local its = part.lack(permits)
    if its > 0 and its + part.at - at > longest then
      longest, which = its + part.at - at, number - 1
    end
  end
  return longest, which
end

local reply = {VERSION, OK, id, news and ledger or '', now, at, 0, 0, 0}
for arg = next_arg, #ARGV, 2 do
  local permits, count = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1])
  local granted = math.min(math.floor(math.max(level(), 0) / permits), count)
  if granted > 0 then
    for _, part in ipairs(parts) do
      part.take(granted * permits)
    end
    changed = true
  end
  local its_lack, which = 0, 0
  if granted < count or count == 0 then
    its_lack, which = lack(permits)
  end
  reply[#reply + 1] = granted
  reply[#reply + 1] = its_lack
  reply[#reply + 1] = which
end

local missing = 0
for _, part in ipairs(parts) do
  local its = part.missing()
  if its > 0 then
    missing = math.max(missing, its + part.at - at)
  end
end
reply[7], reply[8] = level(), missing
-- Runs that write are what a master has to do for this key.
if now - since >= BEAT or now < since then
  load = math.floor(runs * 1000000 / math.max(now - since, BEAT))
  since, runs = now, 0
end
reply[9] = load
if changed then
  local packed = {string.char(#parts)}
  for number, part in ipairs(parts) do
    packed[#packed + 1] = string.char(kernels[number])
    packed[#packed + 1] = part.pack()
  end
  local new = table.concat(packed)
  local ttl = math.max(tonumber(ARGV[3]), math.ceil((at - now + missing) / 1000) + 1000)
  if stored and news then
    -- How long home must live only those know who know its ledger.
    ttl = math.max(ttl, redis.call('PTTL', KEYS[1]))
  end
  local head = struct.pack(HEAD, VERSION, KERNEL, kind, id, body - 1 + #new, since, runs + 1, load)
  redis.call('SET', KEYS[1], head .. new .. ledger, 'PX', string.format('%.0f', ttl))
end
return reply
