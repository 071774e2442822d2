//! Whatever a plan file says, reading and checking it ends with an answer: no panic, no endless loop.

mod hard;

use hard::head_pieces::head_pieces;
use hard::long_document::{LongDocument, long_document};
use hard::ping_pong::ping_pong;
use hard::striped_ring::striped_ring;
use proptest::prelude::*;
use serde_json::{Map, Value};
use skewbench_plan::check::{Limits, check};
use skewbench_plan::{AttentionShape, Pass, Plan};

fn good_plans() -> Vec<Value> {
    let shape = AttentionShape { q_heads: 4, kv_heads: 2, head_dim: 64 };
    let size = LongDocument { tokens: 24, block: 6, workers: 4, homes: 2, node: 2 };
    let plans = [
        striped_ring(&[5, 1, 9], 3, shape),
        ping_pong([&[4, 3], &[6]], 2, shape),
        long_document(size, shape),
        head_pieces(12, 8, 4, shape),
    ];
    plans.iter().map(|plan| serde_json::to_value(plan).unwrap()).collect()
}

/// Answers; what the answer is does not matter.
fn answer(plan: &Plan) {
    let limits = Limits { memory_bytes: Some(1 << 30) };
    if check(plan, &limits).is_ok() {
        for pass in [Pass::Forward, Pass::Backward] {
            assert_eq!(plan.load(pass).len(), plan.ranks as usize);
        }
    }
}

/// One change somewhere in a JSON tree: of leaf (or element of an array) number `at`, counted around.
#[derive(Clone, Debug)]
struct Edit {
    at: usize,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Set(Value),
    Delete,
    Double,
    Step(i64),
}

/// Pointers to all leaves, or to all elements of arrays.
fn pointers(value: &Value, elements: bool, at: &mut String, found: &mut Vec<String>) {
    let mut visit = |name: &str, child: &Value, element: bool| {
        let len = at.len();
        at.extend(["/", name]);
        if elements && element || !elements && !child.is_array() && !child.is_object() {
            found.push(at.clone());
        }
        pointers(child, elements, at, found);
        at.truncate(len);
    };
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                visit(&index.to_string(), item, true);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                visit(name, field, false);
            }
        }
        _ => {}
    }
}

fn edit(value: &mut Value, Edit { at, kind }: &Edit) {
    let mut found = Vec::new();
    pointers(value, matches!(kind, Kind::Delete | Kind::Double), &mut String::new(), &mut found);
    let Some(at) = at.checked_rem(found.len()).map(|i| found.swap_remove(i)) else { return };
    match kind {
        Kind::Set(new) => value.pointer_mut(&at).into_iter().for_each(|leaf| *leaf = new.clone()),
        Kind::Step(by) => {
            if let Some(leaf) = value.pointer_mut(&at) {
                *leaf = leaf.as_i64().map_or(Value::Null, |old| old.wrapping_add(*by).into());
            }
        }
        Kind::Delete | Kind::Double => {
            let Some((list, index)) = at.rsplit_once('/') else { return };
            let Some(list) = value.pointer_mut(list).and_then(Value::as_array_mut) else { return };
            let Ok(index) = index.parse::<usize>() else { return };
            let item = list.remove(index);
            if matches!(kind, Kind::Double) {
                list.insert(index, item.clone());
                list.insert(index, item);
            }
        }
    }
}

fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0u64..8,
        2 => prop::sample::select(vec![15, 16, 255, 256, 65_535, 65_536, 1 << 31, (1 << 32) - 2, (1 << 32) - 1]),
        1 => any::<u32>().prop_map(u64::from),
    ]
}

fn edits() -> impl Strategy<Value = Edit> {
    let kind = prop_oneof![
        4 => numbers().prop_map(|n| Kind::Set(n.into())),
        1 => Just(Kind::Set("full".into())),
        1 => Just(Kind::Set("causal".into())),
        1 => any::<bool>().prop_map(|b| Kind::Set(b.into())),
        2 => Just(Kind::Delete),
        2 => Just(Kind::Double),
        4 => (-2i64..3).prop_map(Kind::Step),
    ];
    (any::<usize>(), kind).prop_map(|(at, kind)| Edit { at, kind })
}

fn list(item: impl Strategy<Value = Value> + 'static, max: usize) -> BoxedStrategy<Value> {
    prop::collection::vec(item, 0..max).prop_map(Value::Array).boxed()
}

fn object(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let (names, values): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
    values
        .prop_map(move |values| Value::Object(names.iter().map(|n| (*n).to_owned()).zip(values).collect::<Map<_, _>>()))
        .boxed()
}

fn number() -> BoxedStrategy<Value> {
    prop_oneof![9 => 0u64..5, 1 => numbers()].prop_map(Value::from).boxed()
}

fn word(words: &'static [&'static str]) -> BoxedStrategy<Value> {
    prop::sample::select(words).prop_map(Value::from).boxed()
}

/// A plan of random numbers in every field.
fn noise() -> BoxedStrategy<Value> {
    let pair = |a, b| object(vec![(a, number()), (b, number())]);
    let rows = || object(vec![("start", number()), ("len", number()), ("stride", number())]);
    let launch = object(vec![
        ("tiles", pair("start", "end")),
        ("mask", word(&["full", "causal", "causal_exclusive"])),
        ("q_heads", pair("start", "end")),
    ]);
    let work = prop_oneof![
        launch.prop_map(|launch| serde_json::json!({ "launch": launch })),
        number().prop_map(|call| serde_json::json!({ "exchange": call })),
        number().prop_map(|tokens| serde_json::json!({"linear": {"tokens": tokens}})),
    ];
    let op =
        object(vec![("work", work.boxed()), ("after", list(pair("stream", "index"), 3)), ("micro_batch", number())]);
    let part = object(vec![
        ("moves", pair("start", "end")),
        ("tensors", prop_oneof![number(), (0u64..512).prop_map(Value::from)].boxed()),
        ("q_heads", pair("start", "end")),
        ("kv_heads", pair("start", "end")),
    ]);
    let call = object(vec![
        ("mode", word(&["copy", "accumulate"])),
        ("dtype", word(&["bf16", "f32"])),
        ("parts", list(part, 3)),
        ("keep", any::<bool>().prop_map(Value::from).boxed()),
    ]);
    let tile = object(vec![("seq", number()), ("q", rows()), ("k", rows())]);
    let mv = object(vec![("from", number()), ("to", number()), ("seq", number()), ("rows", rows())]);
    let pass = object(vec![
        ("tiles", list(tile, 4)),
        ("moves", list(mv, 4)),
        ("calls", list(call, 3)),
        ("ranks", list(object(vec![("streams", list(list(op, 4), 3))]), 4)),
    ]);
    let shard = || list(object(vec![("rank", number()), ("seq", number()), ("rows", rows())]), 3);
    object(vec![
        ("planner", Just(Value::from("noise")).boxed()),
        ("shape", object(vec![("q_heads", number()), ("kv_heads", number()), ("head_dim", number())])),
        ("sequences", list(list(number(), 4), 3)),
        ("ranks", number()),
        ("entry", shard()),
        ("exit", shard()),
        ("forward", pass.clone()),
        ("backward", pass),
        ("accounting", Just(serde_json::to_value(skewbench_plan::Accounting::default()).unwrap()).boxed()),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(plan) = serde_json::from_slice::<Plan>(&bytes) {
            answer(&plan);
        }
    }

    #[test]
    fn noise_is_answered(value in noise()) {
        let plan: Result<Plan, _> = serde_json::from_value(value);
        if let Ok(plan) = plan {
            answer(&plan);
        }
    }

    #[test]
    fn edited_plans_are_answered(which in 0usize..4, edits in prop::collection::vec(edits(), 1..5)) {
        let mut value = good_plans().swap_remove(which);
        for change in &edits {
            edit(&mut value, change);
        }
        if let Ok(plan) = serde_json::from_value::<Plan>(value) {
            answer(&plan);
        }
    }
}
