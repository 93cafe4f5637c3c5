-- The globals that a Redis server gives to a script, and no others.
std = "lua51"
read_globals = { "redis", "KEYS", "ARGV", "struct", "bit", "cjson", "cmsgpack" }
max_line_length = 120
