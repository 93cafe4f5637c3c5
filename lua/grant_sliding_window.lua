-- Sliding window: home hands over parts of its share, as src/kernel/lend.rs does.
-- KEYS[1]  home, the only key touched
-- ARGV     1 id expected | 2 new id | 3 least ttl, ms | 4 new ledger without the sub-keys of the new grants
--          | permits of home | id,permits,empty a grant
-- reply    {version, status, id, ledger}

local VERSION, KERNEL = 1, 3
local OK, STALE, OTHER_KERNEL = 0, 1, 2
local HOME, LENT = 0, 1
-- version, kernel, kind, id, bytes ahead of the ledger
local HEAD = '<BBBc16I4'
-- permits, window, step, seen, used, number of parts; then the parts
local BODY, PART = '<i8i8i8i8i8I4', '<i8i8'

local state = redis.call('GET', KEYS[1])
if not state then
  return {VERSION, STALE, '', ''}
end
local version, kernel, kind, id, ledger_at, body = struct.unpack(HEAD, state)
if version ~= VERSION then
  return redis.error_reply('SHARDLIMIT state of version ' .. version .. ', this script knows ' .. VERSION)
end
-- Only home has one.
local old_ledger = string.sub(state, ledger_at + 1)
if kernel ~= KERNEL then
  return {VERSION, OTHER_KERNEL, id, old_ledger}
end
if kind ~= HOME or id ~= ARGV[1] then
  return {VERSION, STALE, id, old_ledger}
end
local _, window, step, seen, used, count, next_part = struct.unpack(BODY, state, body)

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- Behind by up to a window: time stands still. By more: the clock was set back for good.
local at = now
if seen > now and seen - now <= window then
  at = seen
end

local starts, charged = {}, {}
for number = 1, count do
  starts[number], charged[number], next_part = struct.unpack(PART, state, next_part)
end

-- A sub-key of these charges; those of nothing are left out.
local function pack(its_kind, its_id, permits, its_used, its_charged)
  local parts, alive = {}, 0
  for number = 1, count do
    parts[number] = ''
    if its_charged[number] > 0 then
      parts[number], alive = struct.pack(PART, starts[number], its_charged[number]), alive + 1
    end
  end
  local its = struct.pack(BODY, permits, window, step, seen, its_used, alive) .. table.concat(parts)
  return struct.pack(HEAD, VERSION, KERNEL, its_kind, its_id, body - 1 + #its) .. its
end

-- A share that has used all of its permits just now.
local function pack_empty(its_id, permits)
  local its = struct.pack(BODY, permits, window, step, at, permits, 1)
  its = its .. struct.pack(PART, at - math.fmod(at, step), permits)
  return struct.pack(HEAD, VERSION, KERNEL, LENT, its_id, body - 1 + #its) .. its
end

local FIRST, ARGS, EMPTY = 6, 3, '1'
local home = tonumber(ARGV[5])
-- The permits of home and of all grants that still have to be handed over.
local rest = home
for arg = FIRST, #ARGV, ARGS do
  if ARGV[arg + 2] ~= EMPTY then
    rest = rest + tonumber(ARGV[arg + 1])
  end
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
for arg = FIRST, #ARGV, ARGS do
  local permits = tonumber(ARGV[arg + 1])
  local lent
  if ARGV[arg + 2] == EMPTY then
    lent = pack_empty(ARGV[arg], permits)
  else
    lent = pack(LENT, ARGV[arg], permits, hand_over(permits))
  end
  ledger[#ledger + 1] = struct.pack('<I4', #lent) .. lent
end
ledger = table.concat(ledger)

local gone = count > 0 and starts[count] + step - 1 + window or now
local ttl = math.max(tonumber(ARGV[3]), math.ceil((gone - now) / 1000) + 1000)
local new = pack(HOME, ARGV[2], home, used, charged) .. ledger
redis.call('SET', KEYS[1], new, 'PX', string.format('%.0f', ttl))
return {VERSION, OK, ARGV[2], ledger}
