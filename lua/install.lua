return redis.error_reply('SHARDLIMIT install is not written yet')
