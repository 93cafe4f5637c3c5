//! Slots, against a real server.

#[path = "support/server.rs"]
#[allow(dead_code, unreachable_pub)]
mod server;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use server::Server;
use shardlimit::Slot;

/// Whatever the bytes, the server puts the key where we say.
#[test]
fn a_server_agrees_on_every_slot() {
    let server = Server::start(&["--cluster-enabled", "yes"]);
    let mut connection = server.connection();
    let mut keys: Vec<Vec<u8>> = [
        "", "{", "}", "{}", "{}x", "x{}", "{a", "a}", "}a{b}", "{{a}}", "{a}{b}", "a{b}c", "a{b", "{ }", "{\0}",
        "{\n}x",
    ]
    .map(|key| key.as_bytes().to_vec())
    .into();
    keys.push(vec![b'x'; 16_384]);
    let mut runner = TestRunner::deterministic();
    let any_key = prop::collection::vec(prop_oneof![Just(b'{'), Just(b'}'), any::<u8>()], 0..40);
    keys.extend((0..5_000).map(|_| any_key.new_tree(&mut runner).unwrap().current()));
    keys.extend(Slot::all().map(|slot| format!("prefix:{{{}}}:name:key", slot.tag()).into_bytes()));

    for chunk in keys.chunks(1_000) {
        let mut pipe = redis::pipe();
        for key in chunk {
            pipe.cmd("CLUSTER").arg("KEYSLOT").arg(key.as_slice());
        }
        let theirs: Vec<u16> = pipe.query(&mut connection).unwrap();
        for (key, theirs) in chunk.iter().zip(theirs) {
            assert_eq!(Slot::of(key).number(), theirs, "{:?}", key.escape_ascii().to_string());
        }
    }
}
