-- Fixed window on one sub-key: the kernel of src/kernel/fixed_window.rs.
-- KEYS[1]  sub-key, the only key touched
-- ARGV     1 id | 2 packed home to create or '' | 3 least ttl, ms | 4 mode (0, 1 reset, 2 touch) | 5 debt
--          | 6 number of refunds | permits,at,line a refund | permits,count an ask
-- reply    {version, status, id, ledger, now, at, level, missing, load, (granted, lack, line) an ask}

local VERSION, KERNEL, NEVER = 1, 2, -1
local OK, STALE, OTHER_KERNEL = 0, 1, 2
local LENT, TOMBSTONE = 1, 2
local PLAIN, RESET = '0', '1'
-- version, kernel, kind, id, bytes ahead of the ledger; since when runs are counted, their number, and load before
local HEAD, BEAT = '<BBBc16I4i8I4I4', 500000
-- permits, window, start, used
local BODY = '<i8i8i8i8'

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
local limit, window, start, used = struct.unpack(BODY, state, body)

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local changed = ARGV[4] ~= PLAIN

-- Behind by up to a window: time stands still. By more: the clock was set back for good, and what was used counts now.
local at = now
if start > now and start - now <= window then
  at = start
end
local current = at - math.fmod(at, window)
if start < current or ARGV[4] == RESET then
  used = 0
end
-- Set back for good: also where nothing is granted, or what was used counts until the clock has caught up.
changed = changed or current < start
start = current

local next_arg = 7
for _ = 1, tonumber(ARGV[6]) do
  local charged_at = tonumber(ARGV[next_arg + 1])
  if charged_at - math.fmod(charged_at, window) == start then
    used = used - math.min(tonumber(ARGV[next_arg]), used)
    changed = true
  end
  next_arg = next_arg + 3
end

local debt = math.min(tonumber(ARGV[5]), math.max(2 * limit - used, 0))
if debt > 0 then
  used, changed = used + debt, true
end

local rest = start + window - at
local reply = {VERSION, OK, id, news and ledger or '', now, at, 0, 0, 0}
for arg = next_arg, #ARGV, 2 do
  local permits, count = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1])
  local fits = math.floor(math.max(limit - used, 0) / permits)
  local granted = math.min(fits, count)
  local lack = 0
  if permits > limit then
    lack = NEVER
  elseif fits < math.max(count, 1) then
    lack = rest
  end
  used = used + granted * permits
  changed = changed or granted > 0
  reply[#reply + 1] = granted
  reply[#reply + 1] = lack
  reply[#reply + 1] = 0
end

reply[7] = limit - used
reply[8] = used == 0 and 0 or rest
-- Runs that write are what a master has to do for this key.
if now - since >= BEAT or now < since then
  load = math.floor(runs * 1000000 / math.max(now - since, BEAT))
  since, runs = now, 0
end
reply[9] = load
if changed then
  local ttl = math.max(tonumber(ARGV[3]), math.ceil((start + window - now) / 1000) + 1000)
  if stored and news then
    -- How long home must live only those know who know its ledger.
    ttl = math.max(ttl, redis.call('PTTL', KEYS[1]))
  end
  local head = struct.pack(HEAD, VERSION, KERNEL, kind, id, ledger_at, since, runs + 1, load)
  local new = struct.pack(BODY, limit, window, start, used)
  redis.call('SET', KEYS[1], head .. new .. ledger, 'PX', string.format('%.0f', ttl))
end
return reply
