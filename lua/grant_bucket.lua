-- Token bucket and leaky bucket: home hands over parts of its share, as src/kernel/lend.rs does.
-- KEYS[1]  home, the only key touched
-- ARGV     1 id expected | 2 new id | 3 least ttl, ms | 4 new ledger without the sub-keys of the new grants
--          | rate,cost,burst of home | id,rate,burst,empty a grant
-- reply    {version, status, id, ledger}

local VERSION, KERNEL = 1, 1
local OK, STALE, OTHER_KERNEL = 0, 1, 2
local HOME, LENT = 0, 1
-- version, kernel, kind, id, bytes ahead of the ledger
local HEAD = '<BBBc16I4'
-- rate, cost, burst, paced, level, seen
local BODY = '<i8i8i8Bi8i8'

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
local rate, cost, burst, paced, level, seen = struct.unpack(BODY, state, body)

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local capacity = burst * cost
local refill = math.ceil(capacity / rate)
-- Behind by up to a refill: time stands still. By more: the clock was set back for good.
local at = now
if seen > now and seen - now <= refill then
  at = seen
end
level = math.min(capacity, level + rate * math.min(math.max(at - seen, 0), 2 * refill))

local new_rate, new_cost, new_burst = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
if math.fmod(new_cost, cost) ~= 0 then
  return redis.error_reply(string.format('SHARDLIMIT %.0f units a permit do not divide %.0f', cost, new_cost))
end
level = level * (new_cost / cost)

local FIRST, ARGS, EMPTY = 8, 4, '1'
-- The burst of home and of all grants that still have to be handed over.
local rest = new_burst
for arg = FIRST, #ARGV, ARGS do
  if ARGV[arg + 3] ~= EMPTY then
    rest = rest + tonumber(ARGV[arg + 2])
  end
end
level = math.min(level, rest * new_cost)

local ledger = {ARGV[4]}
for arg = FIRST, #ARGV, ARGS do
  local its_rate, its_burst = tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  local given = 0
  if ARGV[arg + 3] ~= EMPTY then
    given = math.floor(level * (its_burst / rest))
    -- Whole permits: a part of one on each shard would be of use to nobody.
    given = given - math.fmod(given, new_cost)
    rest = rest - its_burst
    -- No more than it can hold or than there is, but all that the others can't hold. A debt stays at home.
    given = math.max(math.min(given, level, its_burst * new_cost), level - rest * new_cost, 0)
    level = level - given
  end
  local lent = struct.pack(BODY, its_rate, new_cost, its_burst, paced, given, at)
  lent = struct.pack(HEAD, VERSION, KERNEL, LENT, ARGV[arg], body - 1 + #lent) .. lent
  ledger[#ledger + 1] = struct.pack('<I4', #lent) .. lent
end
ledger = table.concat(ledger)

local missing = new_burst * new_cost - level
local ttl = math.max(tonumber(ARGV[3]), math.ceil((at - now + missing / new_rate) / 1000) + 1000)
local new = struct.pack(BODY, new_rate, new_cost, new_burst, paced, level, at)
new = struct.pack(HEAD, VERSION, KERNEL, HOME, ARGV[2], body - 1 + #new) .. new .. ledger
redis.call('SET', KEYS[1], new, 'PX', string.format('%.0f', ttl))
return {VERSION, OK, ARGV[2], ledger}
