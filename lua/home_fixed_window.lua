-- Fixed window: home writes another ledger, as src/kernel/rewrite.rs does. It takes back what shares had used, carries
-- its count over to the new definition, and hands over parts of it to new grants.
-- KEYS[1]  home, the only key touched
-- ARGV     1 id expected, '' if nothing may be there | 2 new id | 3 least ttl, ms
--          | 4 new ledger without the sub-keys of the new grants
--          | 5 carry (0 same definition, 1 keep, 2 proportional, 3 reset)
--          | 6 permits of the limit before, 7 after | 8 permits to deduct (they are, as home's are fewer)
--          | 9 number of shares that come back
--          | permits,window of home | permits,tombstone or '' a share that comes back | id,permits a grant
-- reply    {version, status, id, ledger}

local VERSION, KERNEL = 1, 2
local OK, STALE, OTHER_KERNEL = 0, 1, 2
local HOME, LENT = 0, 1
local SAME, PROPORTIONAL, RESET = '0', '2', '3'
-- version, kernel, kind, id, bytes ahead of the ledger; since when runs are counted, their number, and load before
local HEAD, HEAD_SIZE = '<BBBc16I4i8I4I4', 39
-- permits, window, start, used
local BODY = '<i8i8i8i8'

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local home, new_window = tonumber(ARGV[10]), tonumber(ARGV[11])

local state = redis.call('GET', KEYS[1])
local since, runs, load = now, 0, 0
-- A home that is made anew, or of another kernel before, begins with nothing: what is lent may have all there was.
local known, used, at = false, home, now
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
    local window, start, _
    _, window, start, used = struct.unpack(BODY, state, body)
    -- Behind by up to a window: time stands still. By more: the clock was set back for good, and what was used
    -- counts now.
    if start > now and start - now <= window then
      at = start
    end
    if start < at - math.fmod(at, window) then
      used = 0
    end
  end
elseif ARGV[1] ~= '' then
  return {VERSION, STALE, '', ''}
end

local next_arg = 12
for _ = 1, tonumber(ARGV[9]) do
  local permits, back = tonumber(ARGV[next_arg]), ARGV[next_arg + 1]
  if back == '' or string.byte(back, 2) ~= KERNEL then
    -- Of a share that is gone nobody knows what was left; neither does this script of one of another kernel.
    used = used + permits
  else
    local body = HEAD_SIZE + 1
    local _, its_window, its_start, its_used = struct.unpack(BODY, back, body)
    if its_start + its_window > at then
      used = used + its_used
    end
  end
  next_arg = next_arg + 2
end

-- Nothing is nothing under any definition.
if ARGV[5] == PROPORTIONAL and known then
  used = math.ceil(used * (tonumber(ARGV[7]) / tonumber(ARGV[6])))
elseif ARGV[5] == RESET then
  used = 0
end
local start = at - math.fmod(at, new_window)

-- The permits of home and of all grants that still have to be handed over.
local ARGS = 2
local rest = home
for arg = next_arg, #ARGV, ARGS do
  rest = rest + tonumber(ARGV[arg + 1])
end

local ledger = {ARGV[4]}
for arg = next_arg, #ARGV, ARGS do
  local permits = tonumber(ARGV[arg + 1])
  local free = rest - used
  local given = math.floor(free * (permits / rest))
  -- No more than it can hold or than there is, but all that the others can't hold. A debt stays at home.
  given = math.max(math.min(given, free, permits), permits - used, 0)
  local its_used = permits - given
  used, rest = used - its_used, rest - permits
  local lent = struct.pack(BODY, permits, new_window, start, its_used)
  lent = struct.pack(HEAD, VERSION, KERNEL, LENT, ARGV[arg], HEAD_SIZE + #lent, at, 0, 0) .. lent
  ledger[#ledger + 1] = struct.pack('<I4', #lent) .. lent
end
ledger = table.concat(ledger)

local ttl = math.max(tonumber(ARGV[3]), math.ceil((start + new_window - now) / 1000) + 1000)
local new = struct.pack(BODY, home, new_window, start, used)
new = struct.pack(HEAD, VERSION, KERNEL, HOME, ARGV[2], HEAD_SIZE + #new, since, runs, load) .. new .. ledger
redis.call('SET', KEYS[1], new, 'PX', string.format('%.0f', ttl))
return {VERSION, OK, ARGV[2], ledger}
