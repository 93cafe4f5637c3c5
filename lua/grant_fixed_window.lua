return redis.error_reply('SHARDLIMIT grant_fixed_window is not written yet')
