-- Fixed window: home hands over parts of its share, as src/kernel/lend.rs does.
-- KEYS[1]  home, the only key touched
-- ARGV     1 id expected | 2 new id | 3 least ttl, ms | 4 new ledger without the sub-keys of the new grants
--          | permits of home | id,permits,empty a grant
-- reply    {version, status, id, ledger}

local VERSION, KERNEL = 1, 2
local OK, STALE, OTHER_KERNEL = 0, 1, 2
local HOME, LENT = 0, 1
-- version, kernel, kind, id, bytes ahead of the ledger
local HEAD = '<BBBc16I4'
-- permits, window, start, used
local BODY = '<i8i8i8i8'

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
local _, window, start, used = struct.unpack(BODY, state, body)

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- Behind by up to a window: time stands still. By more: the clock was set back for good, and what was used counts now.
local at = now
if start > now and start - now <= window then
  at = start
end
local current = at - math.fmod(at, window)
if start < current then
  used = 0
end
start = current

local FIRST, ARGS, EMPTY = 6, 3, '1'
local home = tonumber(ARGV[5])
-- The permits of home and of all grants that still have to be handed over.
local rest = home
for arg = FIRST, #ARGV, ARGS do
  if ARGV[arg + 2] ~= EMPTY then
    rest = rest + tonumber(ARGV[arg + 1])
  end
end

local ledger = {ARGV[4]}
for arg = FIRST, #ARGV, ARGS do
  local permits = tonumber(ARGV[arg + 1])
  local its_used = permits
  if ARGV[arg + 2] ~= EMPTY then
    local free = rest - used
    local given = math.floor(free * (permits / rest))
    -- No more than it can hold or than there is, but all that the others can't hold. A debt stays at home.
    given = math.max(math.min(given, free, permits), permits - used, 0)
    its_used = permits - given
    used, rest = used - its_used, rest - permits
  end
  local lent = struct.pack(BODY, permits, window, start, its_used)
  lent = struct.pack(HEAD, VERSION, KERNEL, LENT, ARGV[arg], body - 1 + #lent) .. lent
  ledger[#ledger + 1] = struct.pack('<I4', #lent) .. lent
end
ledger = table.concat(ledger)

local ttl = math.max(tonumber(ARGV[3]), math.ceil((start + window - now) / 1000) + 1000)
local new = struct.pack(BODY, home, window, start, used)
new = struct.pack(HEAD, VERSION, KERNEL, HOME, ARGV[2], body - 1 + #new) .. new .. ledger
redis.call('SET', KEYS[1], new, 'PX', string.format('%.0f', ttl))
return {VERSION, OK, ARGV[2], ledger}
