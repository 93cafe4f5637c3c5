-- Token bucket and leaky bucket: home writes another ledger, as src/kernel/rewrite.rs does. It takes back what shares
-- had left, carries its level over to the new definition, and hands over parts of it to new grants.
-- KEYS[1]  home, the only key touched
-- ARGV     1 id expected, '' if nothing may be there | 2 new id | 3 least ttl, ms
--          | 4 new ledger without the sub-keys of the new grants
--          | 5 carry (0 same definition, 1 keep, 2 proportional, 3 reset)
--          | 6 burst of the limit before, 7 after | 8 permits to deduct | 9 number of shares that come back
--          | rate,cost,burst,paced of home | permits,tombstone or '' a share that comes back | id,rate,burst a grant
-- reply    {version, status, id, ledger}

local VERSION, KERNEL = 1, 1
local OK, STALE, OTHER_KERNEL = 0, 1, 2
local HOME, LENT = 0, 1
local SAME, PROPORTIONAL, RESET = '0', '2', '3'
-- version, kernel, kind, id, bytes ahead of the ledger; since when runs are counted, their number, and load before
local HEAD, HEAD_SIZE = '<BBBc16I4i8I4I4', 39
-- rate, cost, burst, flags, level, seen; with leases, how long they are held, since when they are counted, and how many
local BODY, LEASED, LEASES = '<i8i8i8Bi8i8', 2, '<i8i8i8i8'

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local new_rate, new_cost, new_burst, paced =
  tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])

local state = redis.call('GET', KEYS[1])
local since, runs, load = now, 0, 0
-- A home that is made anew, or of another kernel before, begins with nothing: what is lent may have all there was.
local known, cost, level, at = false, new_cost, 0, now
-- What is held in processes stays home's affair, until then.
local leases, forgotten = '', now
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
    known = true
    local rate, burst, flags, seen, behind
    rate, cost, burst, flags, level, seen, behind = struct.unpack(BODY, state, body)
    local capacity = burst * cost
    local refill = math.ceil(capacity / math.max(rate, 1))
    -- Behind by up to a refill: time stands still. By more: the clock was set back for good.
    if seen > now and seen - now <= refill then
      at = seen
    end
    local room = capacity
    if flags == LEASED then
      -- What is held has its place until all of it is forgotten.
      local held_for, counted, leased, before = struct.unpack(LEASES, state, behind)
      local edge = math.min(counted + 2 * held_for, at)
      local less = math.max(capacity - (leased + before) * cost, 0)
      level = math.min(less, level + rate * math.min(math.max(edge - seen, 0), 2 * refill))
      seen, room = math.max(seen, edge), edge < at and capacity or less
      if edge >= at then
        leases = struct.pack(LEASES, held_for, math.min(counted, at), leased, before)
        forgotten = counted + 2 * held_for + (leased + before) * cost / math.max(new_rate, 1)
      end
    end
    level = math.min(room, level + rate * math.min(math.max(at - seen, 0), 2 * refill))
  end
elseif ARGV[1] ~= '' then
  return {VERSION, STALE, '', ''}
end

-- Units of one cost in units of another: where that does not come out even, whole permits.
local function convert(units, from, to)
  if math.fmod(to, from) == 0 then
    return units * (to / from)
  end
  return math.floor(units / from) * to
end

local next_arg = 14
for _ = 1, tonumber(ARGV[9]) do
  local back = ARGV[next_arg + 1]
  -- Of a share that is gone nobody knows what was left; neither does this script of one of another kernel.
  if back ~= '' and string.byte(back, 2) == KERNEL then
    local body = HEAD_SIZE + 1
    local _, its_cost, _, _, its_level = struct.unpack(BODY, back, body)
    level = level + convert(its_level, its_cost, cost)
  end
  next_arg = next_arg + 2
end
-- No debt for what others may have spent.
level = math.min(level, math.max(level - tonumber(ARGV[8]) * cost, 0))

-- The burst of home and of all grants that still have to be handed over.
local ARGS = 3
local rest = new_burst
for arg = next_arg, #ARGV, ARGS do
  rest = rest + tonumber(ARGV[arg + 2])
end
-- Nothing is nothing under any definition.
if ARGV[5] == PROPORTIONAL and known then
  level = math.floor(level * (tonumber(ARGV[7]) / tonumber(ARGV[6])))
end
if ARGV[5] == RESET or level >= rest * cost then
  level = rest * new_cost
elseif ARGV[5] ~= SAME and level <= -rest * cost then
  -- Nobody is locked out for longer than the new limit takes to refill.
  level = -rest * new_cost
else
  level = convert(level, cost, new_cost)
end

local ledger = {ARGV[4]}
for arg = next_arg, #ARGV, ARGS do
  local its_rate, its_burst = tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  local given = math.floor(level * (its_burst / rest))
  -- Whole permits: a part of one on each shard would be of use to nobody.
  given = given - math.fmod(given, new_cost)
  rest = rest - its_burst
  -- No more than it can hold or than there is, but all that the others can't hold. A debt stays at home.
  given = math.max(math.min(given, level, its_burst * new_cost), level - rest * new_cost, 0)
  level = level - given
  local lent = struct.pack(BODY, its_rate, new_cost, its_burst, paced, given, at)
  lent = struct.pack(HEAD, VERSION, KERNEL, LENT, ARGV[arg], HEAD_SIZE + #lent, at, 0, 0) .. lent
  ledger[#ledger + 1] = struct.pack('<I4', #lent) .. lent
end
ledger = table.concat(ledger)

local missing = new_burst * new_cost - level
local ttl = math.max(tonumber(ARGV[3]), math.ceil((at - now + missing / math.max(new_rate, 1)) / 1000) + 1000)
local new = struct.pack(BODY, new_rate, new_cost, new_burst, paced, level, at)
-- A queue has none.
if leases ~= '' and paced == 0 then
  ttl = math.max(ttl, math.ceil((forgotten - now) / 1000))
  new = struct.pack(BODY, new_rate, new_cost, new_burst, LEASED, level, at) .. leases
end
new = struct.pack(HEAD, VERSION, KERNEL, HOME, ARGV[2], HEAD_SIZE + #new, since, runs, load) .. new .. ledger
redis.call('SET', KEYS[1], new, 'PX', string.format('%.0f', ttl))
return {VERSION, OK, ARGV[2], ledger}
