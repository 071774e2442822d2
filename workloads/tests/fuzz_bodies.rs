//! The bodies of the fuzz targets on random input, and on damaged copies of real input, which reach deeper.

use std::ops::ControlFlow;

use proptest::prelude::*;
use skewbench_workloads::{ImportOptions, ReadOptions, fuzz_bodies, import};

fn parquet_file() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (folder.path().join("a.txt"), folder.path().join("a.parquet"));
    std::fs::write(&input, "5\n70\n1\n70\n5\n").unwrap();
    let options = ImportOptions { read: ReadOptions::default(), out: out.clone(), overwrite: false };
    import(&[input], &options, &mut |_| ControlFlow::Continue(())).unwrap();
    std::fs::read(out).unwrap()
}

fn npy_file() -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00\x46\x00{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }".to_vec();
    bytes.resize(79, b' ');
    bytes.push(b'\n');
    bytes.extend([5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0]);
    bytes
}

const TOKENIZER: &[u8] = br#"{"version": "1.0", "truncation": {"direction": "Right", "max_length": 2, "strategy":
 "LongestFirst", "stride": 0}, "padding": null, "added_tokens": [], "normalizer": null,
 "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
 "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "one": 1}, "unk_token": "[UNK]"}}"#;

/// A copy with some bytes replaced and the end cut off.
fn damaged(whole: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let size = whole.len();
    (prop::collection::vec((0..size, any::<u8>()), 0..4), prop_oneof![3 => Just(size), 1 => 0..size]).prop_map(
        move |(changes, end)| {
            let mut bytes = whole.clone();
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            bytes.truncate(end);
            bytes
        },
    )
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn jsonl(input in prop_oneof![bytes(), damaged(b"{\"tokens\": [1, 2.5e3], \"a\": {}}\n{\"tokens\": -1}\n".to_vec())]) {
        fuzz_bodies::jsonl(&input);
    }

    #[test]
    fn csv(input in prop_oneof![bytes(), damaged(b"a,tokens\n\"x\ny\",5\nz,6\n".to_vec())]) {
        fuzz_bodies::csv(&input);
    }

    #[test]
    fn lines(input in prop_oneof![bytes(), damaged(b"12\n7.0\n\n1e3\n".to_vec())]) {
        fuzz_bodies::lines(&input);
    }

    #[test]
    fn npy(input in prop_oneof![bytes(), damaged(npy_file())]) {
        fuzz_bodies::npy(&input);
    }

    #[test]
    fn parquet(input in prop_oneof![bytes(), damaged(parquet_file())]) {
        fuzz_bodies::parquet(&input);
    }

    #[test]
    fn packing(input in prop_oneof![bytes(), damaged(b"ff:open=12,top_up=100".to_vec())]) {
        fuzz_bodies::packing(&input);
    }

    #[test]
    fn tokenizer(input in prop_oneof![bytes(), damaged(TOKENIZER.to_vec())]) {
        fuzz_bodies::tokenizer(&input);
    }

    #[test]
    fn name(input in prop_oneof![bytes(), damaged(b"paper-256k".to_vec())]) {
        fuzz_bodies::name(&input);
    }
}

#[test]
fn deep_json_does_not_overflow_the_stack() {
    let deep = |open: &str| format!("{{\"tokens\": {}", open.repeat(200_000));
    fuzz_bodies::jsonl(deep("[").as_bytes());
    fuzz_bodies::jsonl(deep("{\"tokens\":").as_bytes());
}
