-- Which servers form the ring: each of them has the record, and the later one counts. What follows it is voted on.
-- KEYS[1]  record, the only key touched
-- ARGV     1 number, 2 mark and 3 text of a record that was decided; no text: the caller only asks | 4 0
--          | to vote: 1 number and 2 mark of the record to be followed, 0 if there is none | 3 what should follow it;
--          no text: the caller asks for a promise to heed no lower ballot | 4 ballot
-- reply    {version, the record that counts, highest ballot promised or 0, ballot voted for or 0, what for or ''}

local VERSION = 1

local record = redis.call('GET', KEYS[1]) or ''
-- Behind the record, until there is another: what was promised and voted for.
local promised, voted, voice = 0, 0, ''
local cut = string.find(record, '%z')
if cut then
  promised, voted, voice = string.match(record, '^(%d+) (%d+)\n(.*)$', cut + 1)
  promised, voted, record = tonumber(promised), tonumber(voted), string.sub(record, 1, cut - 1)
end
local number, mark = string.match(record, '\nnumber (%d+) (%d+)\n')
number, mark = tonumber(number or 0), tonumber(mark or 0)

local its_number, its_mark, ballot = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[4])
if ballot > 0 then
  -- Whoever wants to follow another record does not know this one.
  if number == its_number and mark == its_mark and ballot >= promised then
    promised = ballot
    if ARGV[3] ~= '' then
      voted, voice = ballot, ARGV[3]
    end
    redis.call('SET', KEYS[1], record .. string.format('\0%.0f %.0f\n', promised, voted) .. voice)
  end
elseif ARGV[3] ~= '' and (its_number > number or (its_number == number and its_mark > mark)) then
  -- Of two first ones, by clients whose lists have little in common, all clients prefer the same.
  record, promised, voted, voice = ARGV[3], 0, 0, ''
  redis.call('SET', KEYS[1], record)
end
return {VERSION, record, promised, voted, voice}
