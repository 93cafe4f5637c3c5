#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| shardlimit::fuzzing::config(data));
