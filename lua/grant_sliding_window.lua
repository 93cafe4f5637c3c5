return redis.error_reply('SHARDLIMIT grant_sliding_window is not written yet')
