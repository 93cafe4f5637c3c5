-- Which servers form the ring: each of them has the record, and the later one counts.
-- KEYS[1]  record, the only key touched
-- ARGV     1 number, 2 mark and 3 text of a record; no text: the caller only asks
-- reply    {version, the record that counts}

local VERSION = 1

local stored = redis.call('GET', KEYS[1])
if ARGV[3] == '' then
  return {VERSION, stored or ''}
end
if stored then
  local number, mark = string.match(stored, '\nnumber (%d+) (%d+)\n')
  number, mark = tonumber(number or 0), tonumber(mark or 0)
  -- Of two that have the same number, all clients prefer the same one.
  if number > tonumber(ARGV[1]) or (number == tonumber(ARGV[1]) and mark >= tonumber(ARGV[2])) then
    return {VERSION, stored}
  end
end
redis.call('SET', KEYS[1], ARGV[3])
return {VERSION, ARGV[3]}
