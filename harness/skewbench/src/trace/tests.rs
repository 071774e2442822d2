use std::sync::Arc;

use serde_json::{Map, Value};
use skewbench_exec::InstrId;
use skewbench_plan::check::Limits;
use skewbench_plan::{AttentionShape, Domain, PackedSequence, Pass};
use skewbench_sim::{Machine, Pricing, Profile, Runs, simulate};
use skewbench_systems::registry::system;

use super::{Event, TraceOptions, of_times, write_trace};
use crate::cells::{Clock, Prepared, prepare};

/// A simulated wave of four ranks, of Ulysses of two.
fn wave(name: &str) -> (Prepared, Vec<Event>) {
    let pricing = Arc::new(Pricing::new(Profile::named("h200").expect("a shipped profile")));
    let sequences = [PackedSequence::new([3000, 1, 1095]), PackedSequence::new([512; 8])];
    let sequences: Vec<&PackedSequence> = sequences.iter().collect();
    let small = [("block".to_owned(), 256.into())].into_iter().collect();
    let options: Map<String, Value> = if name == "libra" { small } else { Map::new() };
    let system = system(name, &options).expect("a system");
    let nodes = [0, 0, 1, 1];
    // Ulysses plans a sequence at a time.
    let (sequences, nodes) =
        if name == "libra" { (&sequences[..], &nodes[..]) } else { (&sequences[..1], &nodes[..2]) };
    let domain = Domain {
        sequences,
        cp: 2,
        shape: AttentionShape { q_heads: 4, kv_heads: 2, head_dim: 128 },
        nodes,
        cost: &*pricing,
        time_factors: &[],
    };
    let made = prepare(&system, &domain, true, &Limits::default(), &Clock::default()).expect("a plan");
    let machine = Machine { cards_per_node: 2, ..Machine::new(pricing, nodes.to_vec()) };
    let times = simulate(&made.program, &machine, Runs { trace: true, ..Runs::default() }).expect("times");
    (made, of_times(&times))
}

fn write(made: &Prepared, events: &[Event], options: &TraceOptions) -> Value {
    let text = write_trace(&made.plan, &made.program, events, options);
    assert!(text.len() <= options.max_bytes.max(8000), "{} bytes", text.len());
    serde_json::from_str(&text).expect("strict JSON")
}

fn slices(trace: &Value) -> Vec<&Value> {
    trace["traceEvents"].as_array().expect("a list").iter().filter(|e| e["ph"] == "X").collect()
}

#[test]
fn every_instruction_is_a_slice_with_its_work() {
    let (made, events) = wave("libra");
    let trace = write(&made, &events, &TraceOptions::new("simulated"));
    assert_eq!(slices(&trace).len(), events.len());
    assert_eq!(trace["otherData"]["clock"], "simulated");
    let total = |pass: Pass, category: &str, arg: &str| -> u64 {
        let word = if pass == Pass::Forward { "forward" } else { "backward" };
        let all = slices(&trace);
        let mine =
            all.iter().filter(|s| s["cat"] == category && s["name"].as_str().is_some_and(|n| n.starts_with(word)));
        mine.map(|s| s["args"][arg].as_u64().unwrap_or(0)).sum()
    };
    for pass in [Pass::Forward, Pass::Backward] {
        assert_eq!(total(pass, "attention", "pairs_times_heads"), made.plan.load(pass).iter().sum::<u64>());
        let (sent, received) = (total(pass, "transfer", "sent_bytes"), total(pass, "transfer", "received_bytes"));
        assert!(sent > 0 && sent == received, "{sent} {received}");
    }
    let lists = slices(&trace);
    let tile = lists.iter().find_map(|s| s["args"]["tile"].get(0)).expect("a tile");
    assert!(tile["document"].is_u64() && tile["rows"].is_string() && tile["keys"].is_string());
    let peer = lists.iter().find_map(|s| s["args"]["peer"].get(0)).expect("a peer");
    assert!(peer["bytes"].is_u64() && peer["rows"].is_u64() && peer["heads"].is_string(), "{peer}");
}

#[test]
fn sizes_are_kept_by_leaving_out_details_then_slices() {
    let (made, events) = wave("libra");
    let whole = write_trace(&made.plan, &made.program, &events, &TraceOptions::new("simulated"));
    let mut left_out = 0;
    for part in [1, 2, 4, 16, 1000] {
        let options = TraceOptions { max_bytes: whole.len() / part, ..TraceOptions::new("simulated") };
        let trace = write(&made, &events, &options);
        let now = trace["otherData"]["slices_left_out"].as_u64().expect("a number");
        assert_eq!(slices(&trace).len() as u64 + now, events.len() as u64);
        assert!(now >= left_out, "{part}");
        left_out = now;
    }
    assert!(left_out > 0);
    let trace = write(&made, &events, &TraceOptions { listed: 0, arrows: 1, ..TraceOptions::new("simulated") });
    assert!(slices(&trace).iter().all(|s| s["args"].get("tile").is_none() && s["args"].get("peer").is_none()));
    assert!(trace["otherData"]["arrows_left_out"].as_u64() > Some(0));
}

#[test]
fn events_of_another_program_and_wild_times_are_harmless() {
    let (made, mut events) = wave("ulysses");
    let known = events.len();
    events.push(Event { rank: 99, ..events[0] });
    events.push(Event { instr: InstrId { stream: 0, index: 9999 }, ..events[0] });
    events[0].end_ps = 0;
    events[1].end_ps = u64::MAX;
    let trace = write(&made, &events, &TraceOptions::new("executed on the CPU, \"wall\" clock\n"));
    assert_eq!(slices(&trace).len(), known);
    assert_eq!(trace["otherData"]["events_of_unknown_instructions"], 2);
    assert!(slices(&trace).iter().all(|s| s["dur"].as_f64().is_some_and(|d| d >= 0.0)));
    let none = write(&made, &[], &TraceOptions::new("nothing"));
    assert!(slices(&none).is_empty());
}
