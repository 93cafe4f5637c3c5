-- Sliding window and log: home writes another ledger, as src/kernel/rewrite.rs does. It takes back what shares had
-- charged, sub-window by sub-window, carries that over to the new definition, and hands over parts of it to new grants.
-- KEYS[1]  home, the only key touched
-- ARGV     1 id expected, '' if nothing may be there | 2 new id | 3 least ttl, ms
--          | 4 new ledger without the sub-keys of the new grants
--          | 5 carry (0 same definition, 1 keep, 2 proportional, 3 reset)
--          | 6 permits of the limit before, 7 after | 8 permits to deduct (they are, as home's are fewer)
--          | 9 number of shares that come back
--          | permits,window,step of home | permits,tombstone or '' a share that comes back | id,permits a grant
-- reply    {version, status, id, ledger}

local VERSION, KERNEL = 1, 3
local OK, STALE, OTHER_KERNEL = 0, 1, 2
local HOME, LENT = 0, 1
local SAME, PROPORTIONAL, RESET = '0', '2', '3'
-- version, kernel, kind, id, bytes ahead of the ledger; since when runs are counted, their number, and load before
local HEAD, HEAD_SIZE = '<BBBc16I4i8I4I4', 39
-- permits, window, step, seen, used, number of parts; then the parts
local BODY, PART = '<i8i8i8i8i8I4', '<i8i8'

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local home, new_window, new_step = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])

-- What was charged in each sub-window, by its start. Only what still counts at `at`, and nothing that lies ahead of it:
-- that counts as charged now.
local charges = {}
local at, current
local function charge(start, permits)
  start = math.min(start, current)
  charges[start] = (charges[start] or 0) + permits
end
local function charge_all(packed, body)
  local _, window, step, _, _, count, next_part = struct.unpack(BODY, packed, body)
  for _ = 1, count do
    local start, permits
    start, permits, next_part = struct.unpack(PART, packed, next_part)
    if start + step - 1 + window > at then
      charge(start, permits)
    end
  end
end

local state = redis.call('GET', KEYS[1])
local since, runs, load = now, 0, 0
local mine
at = now
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
    mine = body
    local _, window, _, seen = struct.unpack(BODY, state, body)
    -- Behind by up to a window: time stands still. By more: the clock was set back for good.
    if seen > now and seen - now <= window then
      at = seen
    end
  end
elseif ARGV[1] ~= '' then
  return {VERSION, STALE, '', ''}
end
current = at - math.fmod(at, new_step)

if mine then
  charge_all(state, mine)
else
  -- A home that is made anew, or of another kernel before, begins with nothing: what is lent may have all there was.
  charge(current, home)
end
local next_arg = 13
for _ = 1, tonumber(ARGV[9]) do
  local permits, back = tonumber(ARGV[next_arg]), ARGV[next_arg + 1]
  if back == '' or string.byte(back, 2) ~= KERNEL then
    -- Of a share that is gone nobody knows what was left; neither does this script of one of another kernel.
    charge(current, permits)
  else
    local body = HEAD_SIZE + 1
    charge_all(back, body)
  end
  next_arg = next_arg + 2
end

local starts = {}
for start in pairs(charges) do
  starts[#starts + 1] = start
end
table.sort(starts)
local charged, used, count = {}, 0, #starts
if ARGV[5] == RESET then
  count = 0
end
-- Nothing is nothing under any definition.
local ratio = ARGV[5] == PROPORTIONAL and mine and tonumber(ARGV[7]) / tonumber(ARGV[6]) or 1
for number = 1, count do
  charged[number] = math.ceil(charges[starts[number]] * ratio)
  used = used + charged[number]
end

-- A sub-key of these charges; those of nothing are left out.
local function pack(its_kind, its_id, counted, permits, its_used, its_charged)
  local parts, alive = {}, 0
  for number = 1, count do
    parts[number] = ''
    if its_charged[number] > 0 then
      parts[number], alive = struct.pack(PART, starts[number], its_charged[number]), alive + 1
    end
  end
  local its = struct.pack(BODY, permits, new_window, new_step, at, its_used, alive) .. table.concat(parts)
  return struct.pack(HEAD, VERSION, KERNEL, its_kind, its_id, HEAD_SIZE + #its, unpack(counted)) .. its
end

-- The permits of home and of all grants that still have to be handed over.
local ARGS = 2
local rest = home
for arg = next_arg, #ARGV, ARGS do
  rest = rest + tonumber(ARGV[arg + 1])
end

-- The share takes its part of what was charged. Sums run from the newest charge to the oldest: the oldest leave first,
-- so what is left at any later time is such a sum, and each of them is split so that neither side has more than fits.
local function hand_over(permits)
  local part = permits / rest
  rest = rest - permits
  local sum, taken, its_charged = 0, 0, {}
  for number = count, 1, -1 do
    local before, here = taken, charged[number]
    sum = sum + here
    taken = math.min(math.floor(sum * part), permits, before + here)
    taken = math.max(taken, before, math.min(permits, sum - rest))
    its_charged[number] = taken - before
    charged[number] = here - its_charged[number]
  end
  used = used - taken
  return taken, its_charged
end

local ledger = {ARGV[4]}
for arg = next_arg, #ARGV, ARGS do
  local permits = tonumber(ARGV[arg + 1])
  local lent = pack(LENT, ARGV[arg], {at, 0, 0}, permits, hand_over(permits))
  ledger[#ledger + 1] = struct.pack('<I4', #lent) .. lent
end
ledger = table.concat(ledger)

local gone = count > 0 and starts[count] + new_step - 1 + new_window or now
local ttl = math.max(tonumber(ARGV[3]), math.ceil((gone - now) / 1000) + 1000)
local new = pack(HOME, ARGV[2], {since, runs, load}, home, used, charged) .. ledger
redis.call('SET', KEYS[1], new, 'PX', string.format('%.0f', ttl))
return {VERSION, OK, ARGV[2], ledger}
