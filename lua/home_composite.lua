-- Several limits: home writes another ledger, as src/kernel/rewrite.rs does. It carries over what each part has; it has
-- lent nothing and lends nothing.
-- KEYS[1]  home, the only key touched
-- ARGV     1 id expected, '' if nothing may be there | 2 new id | 3 least ttl, ms | 4 new ledger
--          | 5 carry (0 same definition, 1 keep, 2 proportional, 3 reset)
--          | 6 burst of the limit before, 7 after | 8 permits to deduct: none | 9 number of shares that come back
--          | the new parts, packed as new | permits,tombstone or '' a share that comes back, of a limit before
-- reply    {version, status, id, ledger}

local VERSION, KERNEL = 1, 4
local OK, STALE, OTHER_KERNEL = 0, 1, 2
local HOME = 0
local BUCKET, FIXED = 1, 2
local SAME, PROPORTIONAL, RESET = '0', '2', '3'
-- version, kernel, kind, id, bytes ahead of the ledger; since when runs are counted, their number, and load before
local HEAD, HEAD_SIZE = '<BBBc16I4i8I4I4', 39
-- rate, cost, burst, paced, level, seen
local BUCKET_BODY = '<i8i8i8Bi8i8'
-- permits, window, start, used
local FIXED_BODY = '<i8i8i8i8'
-- permits, window, step, seen, used, number of charges; then the charges
local SLIDING_BODY, CHARGE = '<i8i8i8i8i8I4', '<i8i8'

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- The parts that are packed from there on, each with its kernel and what it holds at the most.
local function unpack_parts(bytes, from)
  local parts, next_at = {}, from + 1
  for number = 1, string.byte(bytes, from) do
    local part = {kernel = string.byte(bytes, next_at)}
    if part.kernel == BUCKET then
      part.rate, part.cost, part.most, part.paced, part.level, part.seen, next_at =
        struct.unpack(BUCKET_BODY, bytes, next_at + 1)
    elseif part.kernel == FIXED then
      part.most, part.window, part.seen, part.used, next_at = struct.unpack(FIXED_BODY, bytes, next_at + 1)
    else
      local count
      part.most, part.window, part.step, part.seen, part.used, count, next_at =
        struct.unpack(SLIDING_BODY, bytes, next_at + 1)
      part.charges = {}
      for index = 1, count do
        local start, permits
        start, permits, next_at = struct.unpack(CHARGE, bytes, next_at)
        part.charges[index] = {start = start, permits = permits}
      end
    end
    parts[number] = part
  end
  return parts
end

local state = redis.call('GET', KEYS[1])
local since, runs, load = now, 0, 0
local old
if state then
  local version, kernel, kind, id, ledger_at, its_since, its_runs, its_load, body = struct.unpack(HEAD, state)
  since, runs, load = its_since, its_runs, its_load
  if version ~= VERSION then
    return redis.error_reply('SHARDLIMIT state of version ' .. version .. ', this script knows ' .. VERSION)
  end
  -- Only home has one.
  local old_ledger = string.sub(state, ledger_at + 1)
  if kind ~= HOME or id ~= ARGV[1] then
    return {VERSION, STALE, id, old_ledger}
  end
  if kernel ~= KERNEL and ARGV[5] == SAME then
    return {VERSION, OTHER_KERNEL, id, old_ledger}
  end
  if kernel == KERNEL then
    old = unpack_parts(state, body)
  end
elseif ARGV[1] ~= '' then
  return {VERSION, STALE, '', ''}
end

local new = unpack_parts(ARGV[10], 1)
-- Whether the parts before are known and alike: else all begin with nothing, as beside shares of a limit before.
local known = old and #old == #new and ARGV[9] == '0'
for number, part in ipairs(new) do
  known = known and old[number].kernel == part.kernel and old[number].most > 0
end

-- Behind by up to a refill: time stands still. By more: the clock was set back for good.
local function steady(seen, refill)
  if seen > now and seen - now <= refill then
    return seen
  end
  return now
end

-- What was used, as it counts under the new definition.
local function carried(used, before, after)
  if ARGV[5] == PROPORTIONAL then
    return math.ceil(used * (after / before))
  elseif ARGV[5] == RESET then
    return 0
  end
  return used
end

local function carry_bucket(was, part)
  local level, cost = 0, part.cost
  part.at = now
  if known then
    cost = was.cost
    local capacity = was.most * cost
    local refill = math.ceil(capacity / math.max(was.rate, 1))
    part.at = steady(was.seen, refill)
    local elapsed = math.min(math.max(part.at - was.seen, 0), 2 * refill)
    level = math.min(capacity, was.level + was.rate * elapsed)
    if ARGV[5] == PROPORTIONAL then
      level = math.floor(level * (part.most / was.most))
    end
  end
  if ARGV[5] == RESET or level >= part.most * cost then
    level = part.most * part.cost
  elseif ARGV[5] ~= SAME and level <= -part.most * cost then
    -- Nobody is locked out for longer than the new limit takes to refill.
    level = -part.most * part.cost
  elseif math.fmod(part.cost, cost) == 0 then
    level = level * (part.cost / cost)
  else
    level = math.floor(level / cost) * part.cost
  end
  part.missing = math.ceil((part.most * part.cost - level) / math.max(part.rate, 1))
  return struct.pack(BUCKET_BODY, part.rate, part.cost, part.most, part.paced, level, part.at)
end

local function carry_fixed(was, part)
  local used = ARGV[5] == RESET and 0 or part.most
  part.at = now
  if known then
    part.at = steady(was.seen, was.window)
    used = was.seen < part.at - math.fmod(part.at, was.window) and 0 or carried(was.used, was.most, part.most)
  end
  local start = part.at - math.fmod(part.at, part.window)
  part.missing = start + part.window - part.at
  return struct.pack(FIXED_BODY, part.most, part.window, start, used)
end

local function carry_sliding(was, part)
  -- Oldest first, as they are stored.
  local starts, charged = {}, {}
  local function add(start, permits)
    if starts[#starts] == start then
      charged[#charged] = charged[#charged] + permits
    else
      starts[#starts + 1], charged[#charged + 1] = start, permits
    end
  end
  part.at = known and steady(was.seen, was.window) or now
  local current = part.at - math.fmod(part.at, part.step)
  if known then
    local old_current = part.at - math.fmod(part.at, was.step)
    for _, charge in ipairs(was.charges) do
      -- What lies ahead of a clock set back for good counts as charged now.
      local start = math.min(charge.start, old_current)
      if start + was.step - 1 + was.window > part.at then
        add(math.min(start, current), charge.permits)
      end
    end
  else
    add(current, part.most)
  end
  local charges, sum = {}, 0
  part.missing = 0
  for number, start in ipairs(starts) do
    local permits = known and carried(charged[number], was.most, part.most) or charged[number]
    if permits > 0 and ARGV[5] ~= RESET then
      charges[#charges + 1] = struct.pack(CHARGE, start, permits)
      sum, part.missing = sum + permits, start + part.step - 1 + part.window - part.at
    end
  end
  return struct.pack(SLIDING_BODY, part.most, part.window, part.step, part.at, sum, #charges) .. table.concat(charges)
end

local packed, missing = {string.char(#new)}, 0
for number, part in ipairs(new) do
  local carry = part.kernel == BUCKET and carry_bucket or part.kernel == FIXED and carry_fixed or carry_sliding
  packed[#packed + 1] = string.char(part.kernel)
  packed[#packed + 1] = carry(known and old[number], part)
  missing = math.max(missing, part.at - now + part.missing)
end
local body = table.concat(packed)
local ttl = math.max(tonumber(ARGV[3]), math.ceil(missing / 1000) + 1000)
local head = struct.pack(HEAD, VERSION, KERNEL, HOME, ARGV[2], HEAD_SIZE + #body, since, runs, load)
redis.call('SET', KEYS[1], head .. body .. ARGV[4], 'PX', string.format('%.0f', ttl))
return {VERSION, OK, ARGV[2], ARGV[4]}
