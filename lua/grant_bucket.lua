return redis.error_reply('SHARDLIMIT grant_bucket is not written yet')
