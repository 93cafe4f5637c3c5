-- Token bucket, leaky bucket and pacing queue on one sub-key: the kernel of src/kernel/bucket.rs.
-- KEYS[1]  sub-key, the only key touched
-- ARGV     1 id | 2 packed home to create or '' | 3 least ttl, ms | 4 mode (0, 1 reset, 2 touch) | 5 debt
--          | 6 number of refunds | permits,at,line a refund, line -1: a lease, not spent
--          | permits,count an ask, permits below 0: a lease, to be held for so many us
-- reply    {version, status, id, ledger, now, at, level, missing, load, (granted, lack, line) an ask}

local VERSION, KERNEL, NEVER = 1, 1, -1
local OK, STALE, OTHER_KERNEL = 0, 1, 2
local LENT, TOMBSTONE = 1, 2
local PLAIN, RESET = '0', '1'
-- version, kernel, kind, id, bytes ahead of the ledger; since when runs are counted, their number, and load before
local HEAD, BEAT = '<BBBc16I4i8I4I4', 500000
local HEAD_SIZE = 39
-- rate, cost, burst, flags, level, seen
local BODY = '<i8i8i8Bi8i8'
local PACED, LEASED, UNSPENT = 1, 2, -1
-- Behind it, of a bucket with leases: how long they are held at the most, since when they are counted, how many they
-- are, and how many there were in as long a time before
local LEASES = '<i8i8i8i8'

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
local rate, cost, burst, flags, level, seen, behind = struct.unpack(BODY, state, body)
local paced = flags == PACED
local held_for, counted, leased, before = 0, 0, 0, 0
if flags == LEASED then
  held_for, counted, leased, before = struct.unpack(LEASES, state, behind)
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local capacity = burst * cost
-- The quotient of two whole numbers below 2^53 never rounds across a whole number.
-- A home that has lent everything has no rate.
local refill = math.ceil(capacity / math.max(rate, 1))
local changed = ARGV[4] ~= PLAIN

if ARGV[4] == RESET then
  seen = now
end
-- Behind by up to a refill: time stands still. By more: the clock was set back for good.
local at = now
if seen > now and seen - now <= refill then
  at = seen
end
-- Set back for good: also where nothing is granted, or the next run finds the same state, and nothing refills.
changed = changed or at < seen
-- Leases have their place here while they may be held: so what is here and what is held is never more than the burst.
-- As they are forgotten, there is more room for what comes back from then on.
local room = math.max(capacity - (leased + before) * cost, 0)
while leased + before > 0 and at - counted >= held_for do
  counted = counted + held_for
  level = math.min(room, level + rate * math.min(math.max(counted - seen, 0), 2 * refill))
  seen, leased, before = math.max(seen, counted), 0, leased
  room = math.max(capacity - before * cost, 0)
end
counted = math.min(counted, at)
level = math.min(room, level + rate * math.min(math.max(at - seen, 0), 2 * refill))
if ARGV[4] == RESET then
  level = room
end

local next_arg = 7
for _ = 1, tonumber(ARGV[6]) do
  local permits = tonumber(ARGV[next_arg])
  local charged, line = tonumber(ARGV[next_arg + 1]), tonumber(ARGV[next_arg + 2])
  if line == UNSPENT then
    -- One that is forgotten has lost its place. Those before go first: so no other is forgotten too early.
    permits = charged >= counted - held_for and math.min(permits, leased + before) or 0
    local older = math.min(permits, before)
    before, leased = before - older, leased - (permits - older)
    room = math.max(capacity - (leased + before) * cost, 0)
  end
  local age = math.max(at - charged, 0)
  -- Only the tail can leave a pacing queue.
  if not paced or (age <= 2 * refill and line - rate * age == capacity - level) then
    level = level + math.max(math.min(math.min(permits, burst) * cost, room - level), 0)
    changed = true
  end
  next_arg = next_arg + 3
end

local debt = math.min(tonumber(ARGV[5]), 2 * burst) * cost
if debt > 0 then
  level = math.min(level, math.max(level - debt, -capacity))
  changed = true
end

local reply = {VERSION, OK, id, news and ledger or '', now, at, 0, 0, 0}
for arg = next_arg, #ARGV, 2 do
  local permits, count = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1])
  local granted, lack, line = 0, NEVER, 0
  local lease = math.max(-permits, 0)
  if lease > 0 then
    permits = 1
  end
  if permits <= burst then
    local need = permits * cost
    line = capacity - level
    if level >= need then
      granted = math.min(count, math.floor(level / need))
    end
    level = level - granted * need
    lack = 0
    if granted < count or count == 0 then
      lack = math.max(need - level, 0)
      -- There is no room for so many until some leases are forgotten.
      if need > room then
        lack = math.max(lack, rate * (counted + held_for - at))
      end
    end
    changed = changed or granted > 0
    if lease > 0 and granted > 0 and not paced then
      counted = leased + before == 0 and at or counted
      held_for, leased = math.max(held_for, lease), leased + granted
    end
  end
  reply[#reply + 1] = granted
  reply[#reply + 1] = lack
  reply[#reply + 1] = line
end

local missing = capacity - level
reply[7], reply[8] = level, missing
-- Runs that write are what a master has to do for this key.
if now - since >= BEAT or now < since then
  load = math.floor(runs * 1000000 / math.max(now - since, BEAT))
  since, runs = now, 0
end
reply[9] = load
if changed then
  local ttl = math.max(tonumber(ARGV[3]), math.ceil((at - now + missing / math.max(rate, 1)) / 1000) + 1000)
  if stored and news then
    -- How long home must live only those know who know its ledger.
    ttl = math.max(ttl, redis.call('PTTL', KEYS[1]))
  end
  local new
  if leased + before > 0 then
    -- What is forgotten is as new, and that is full: so until leases are forgotten, and their place is filled.
    local filled = (leased + before) * cost / math.max(rate, 1)
    ttl = math.max(ttl, math.ceil((counted + 2 * held_for - now + filled) / 1000))
    new = struct.pack(BODY, rate, cost, burst, LEASED, level, at)
      .. struct.pack(LEASES, held_for, counted, leased, before)
  else
    new = struct.pack(BODY, rate, cost, burst, paced and PACED or 0, level, at)
  end
  local head = struct.pack(HEAD, VERSION, KERNEL, kind, id, HEAD_SIZE + #new, since, runs + 1, load)
  redis.call('SET', KEYS[1], head .. new .. ledger, 'PX', string.format('%.0f', ttl))
end
return reply
