-- A shard gives its share up, whatever its kernel: a tombstone keeps what was left of it, and no acquire or install of
-- that grant changes anything any more.
-- KEYS[1]  lent sub-key, the only key touched
-- ARGV     1 id of the grant | 2 ttl, ms
-- reply    {version, status, tombstone or '', now}

local VERSION, CLOSED, NEWER = 1, 0, 1
local HOME, LENT, TOMBSTONE, BUCKET = 0, 1, 2, 1
-- version, kernel, kind, id, bytes ahead of the ledger; an id begins with its stamp
local HEAD, HEAD_SIZE, STAMP = '<BBBc16I4i8I4I4', 39, '<i8'
-- rate, cost, burst, flags, level, seen; with leases, how long they are held, since when they are counted, and how many
local BODY, LEASED, LEASES = '<i8i8i8Bi8i8', 2, '<i8i8i8i8'

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local stored = redis.call('GET', KEYS[1])
-- Nothing there: nothing was left, and the grant must not be installed any more.
local tombstone = struct.pack(HEAD, VERSION, 0, TOMBSTONE, ARGV[1], HEAD_SIZE, now, 0, 0)
local left = ''
if stored then
  local version, kernel, kind, id = struct.unpack(HEAD, stored)
  local body = HEAD_SIZE + 1
  if version ~= VERSION then
    return redis.error_reply('SHARDLIMIT state of version ' .. version .. ', this script knows ' .. VERSION)
  end
  if id == ARGV[1] and kind == TOMBSTONE then
    -- Done before: what was left then is what counts.
    return {VERSION, CLOSED, kernel == 0 and '' or stored, now}
  end
  if kind == HOME or (id ~= ARGV[1] and struct.unpack(STAMP, id) >= struct.unpack(STAMP, ARGV[1])) then
    return {VERSION, NEWER, '', now}
  end
  if kind == LENT and id == ARGV[1] then
    tombstone = struct.pack('<BBB', VERSION, kernel, TOMBSTONE) .. string.sub(stored, 4)
    if kernel == BUCKET then
      -- It refills until now, and never again.
      local rate, cost, burst, flags, level, seen, behind = struct.unpack(BODY, stored, body)
      local capacity = burst * cost
      local refill = math.ceil(capacity / rate)
      local at = now
      if seen > now and seen - now <= refill then
        at = seen
      end
      local room = capacity
      if flags == LEASED then
        -- What is held has its place until all of it is forgotten.
        local held_for, counted, leased, before = struct.unpack(LEASES, stored, behind)
        local edge = math.min(counted + 2 * held_for, at)
        local less = math.max(capacity - (leased + before) * cost, 0)
        level = math.min(less, level + rate * math.min(math.max(edge - seen, 0), 2 * refill))
        seen, room = math.max(seen, edge), edge < at and capacity or less
      end
      level = math.min(room, level + rate * math.min(math.max(at - seen, 0), 2 * refill))
      tombstone = string.sub(tombstone, 1, body - 1)
        .. struct.pack(BODY, rate, cost, burst, flags, level, at) .. string.sub(tombstone, behind)
    end
    left = tombstone
  end
end
redis.call('SET', KEYS[1], tombstone, 'PX', ARGV[2])
return {VERSION, CLOSED, left, now}
