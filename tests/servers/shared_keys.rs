//! Any bytes can be a key, and what name, key and prefix separate stays separate, on every master.

use crate::shared::{Cluster, Layout, client_of, define, exactly, on_master, take_all};
use shardlimit::ErrorKind;

const LIMIT: &str = "token-bucket 20/day burst 20";

/// Braces would move a sub-key to another slot, and bytes that end strings or lines would cut it short.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_bytes_are_a_key_of_their_own() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let limit = define(client_of(&cluster, 0).shards(exactly(2)), LIMIT);
    let other = define(client_of(&cluster, 1), LIMIT);
    let long = [vec![0xff; 16_383], vec![b'{']].concat();
    let keys: [&[u8]; 18] = [
        b"{",
        b"}",
        b"{}",
        b"{}{a}",
        b"{a}",
        b"{a}b",
        b"a{b}",
        b"}{",
        b"{{a}}",
        b" ",
        b" a",
        b"a ",
        b"\0",
        b"a\0b",
        b"\n",
        b"\r\n$3\r\nabc\r\n",
        "schlüssel".as_bytes(),
        &long,
    ];
    for key in keys {
        let plan = limit.plan(key).await.unwrap();
        assert_eq!(plan.shards.len(), 2, "{}", key.escape_ascii());
        for shard in &plan.shards {
            assert_eq!(shardlimit::Slot::of(&shard.sub_key), shard.slot);
            assert_eq!(on_master::<u8>(&cluster, shard, "EXISTS"), 1, "{}", key.escape_ascii());
        }
        assert_eq!(take_all(&limit, key).await, 20, "{}", key.escape_ascii());
        assert_eq!(take_all(&other, key).await, 0, "the same key for all clients");
    }
    let too_long = vec![b'a'; 16_385];
    for key in [b"".as_slice(), &too_long] {
        assert_eq!(limit.acquire(key).await.unwrap_err().kind(), ErrorKind::InvalidKey);
        assert_eq!(limit.plan(key).await.unwrap_err().kind(), ErrorKind::InvalidKey);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_and_prefixes_keep_keys_apart() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let limiter = client_of(&cluster, 0).shards(exactly(2)).build().unwrap();
    let limits = [
        limiter.define("a", LIMIT.parse().unwrap()).unwrap(),
        limiter.define("b", LIMIT.parse().unwrap()).unwrap(),
        // Another kernel under another name finds nothing of the others'.
        limiter.define("c", "sliding-window 20/365days".parse().unwrap()).unwrap(),
        define(client_of(&cluster, 0).prefix("elsewhere"), LIMIT),
        define(client_of(&cluster, 1).prefix("elsewhere2"), LIMIT),
    ];
    for key in ["hot", "a:hot", "b:hot"] {
        for limit in &limits {
            assert_eq!(take_all(limit, key).await, 20, "{limit:?} {key}");
        }
        for limit in &limits {
            assert_eq!(take_all(limit, key).await, 0, "{limit:?} {key}");
        }
    }
}

/// What is forgotten here is still known at home: more keys than may be tracked cost time, not permits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_beyond_the_bound_are_exact_too() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let limit = define(client_of(&cluster, 0).shards(exactly(2)).max_keys(1), LIMIT);
    let mut taken = [0; 100];
    for _ in 0..25 {
        for (number, taken) in taken.iter_mut().enumerate() {
            *taken += u64::from(limit.acquire(number.to_string()).await.unwrap().is_allowed());
        }
    }
    assert!(taken.iter().all(|taken| *taken <= 20), "{taken:?}");
    for (number, taken) in taken.iter().enumerate() {
        assert_eq!(taken + take_all(&limit, number.to_string()).await, 20, "key {number}");
    }
}
