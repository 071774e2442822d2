//! Simulation of small programs: exact times, contention as measured, topology, errors.

use crate::common::{Builder, machine};
use skewbench_exec::{InstrId, InstrKind, Program};
use skewbench_plan::{Mask, Pass, Span};
use skewbench_sim::{
    Launch, Machine, Overrides, PassTimes, Runs, SimError, Transport, profile::Nic, simulate, simulate_launches,
    simulate_pass,
};

const COPY_ENGINES: Overrides = Overrides {
    transport: Some(Transport::CopyEngines),
    network_bandwidth: None,
    network_efficiency: None,
    network_latency_ns: None,
    nic: None,
    oversubscription: None,
    card_relative_sd: None,
    gemm_flops_per_s: None,
};

/// Two head pieces a rank, dispatched around `ranks` ranks and back, each piece's attention under the next one's transfer.
fn pipelined(ranks: usize) -> Program {
    let mut builder = Builder::new(ranks);
    let n = ranks as u32;
    let out: Vec<(u32, u32, u64)> = (0..n).flat_map(|r| [(r, (r + 1) % n, 4096), (r, (r + 3) % n, 1024)]).collect();
    let back: Vec<(u32, u32, u64)> = out.iter().map(|&(from, to, rows)| (to, from, rows)).collect();
    let (out, back) = (builder.route(&out), builder.route(&back));
    let calls: Vec<(u32, u32)> = (0..2).map(|_| (builder.call(out, 4096), builder.call(back, 2048))).collect();
    for rank in 0..ranks {
        let mut dispatched = Vec::new();
        for (dispatch, _) in &calls {
            builder.push(rank, 1, InstrKind::Pack { call: *dispatch, bytes: 1 << 24 }, &[]);
            dispatched.push(builder.push(rank, 1, InstrKind::Transfer { call: *dispatch }, &[]));
        }
        for (piece, (_, combine)) in calls.iter().enumerate() {
            let rows = 1024 * (1 + rank as u32 % 3);
            let tiles = [(rows, 40_000), (2048, 20_000)];
            let done = builder.launch(rank, Mask::Full, 16, &tiles, &[dispatched[piece]]);
            builder.push(rank, 2, InstrKind::Transfer { call: *combine }, &[done]);
            builder.push(rank, 2, InstrKind::Merge { call: *combine, bytes: 1 << 22 }, &[]);
        }
    }
    builder.program()
}

fn run(program: &Program, machine: &Machine) -> PassTimes {
    simulate_pass(program, Pass::Forward, machine, Runs { trace: true, ..Runs::ALL }).expect("runs")
}

#[test]
fn golden_times() {
    let found = run(&pipelined(8), &machine(Overrides::default(), vec![0, 0, 0, 0, 1, 1, 1, 1]));
    assert_eq!(
        (found.wave_ps, found.slowest_rank, found.compute_only_ps, found.transfers_only_ps, found.exposed_ps()),
        GOLDEN_WAVE
    );
    assert_eq!(found.rank_end_ps, GOLDEN_RANKS);
    assert_eq!((found.intra_bytes[0], found.inter_bytes[0]), (2 * 5120 * 4096, 2 * 5120 * 2048));
}

const GOLDEN_WAVE: (u64, u32, Option<u64>, Option<u64>, Option<u64>) =
    (5_105_427_124, 2, Some(4_340_391_353), Some(1_237_660_442), Some(765_035_771));
const GOLDEN_RANKS: [u64; 8] = [
    4_616_129_498,
    5_087_645_080,
    5_105_427_124,
    5_087_645_080,
    4_598_347_454,
    5_105_427_124,
    4_598_347_454,
    5_105_427_124,
];

#[test]
fn runs_repeat_to_the_last_picosecond_and_traces_agree() {
    let (program, machine) = (pipelined(8), machine(Overrides::default(), vec![0, 0, 0, 0, 1, 1, 1, 1]));
    let first = run(&program, &machine);
    assert_eq!(first, run(&program, &machine));
    assert_eq!(first.trace.len(), 8 * (4 + 2 + 4));
    assert_eq!(first.trace.iter().map(|e| e.end_ps).max(), Some(first.wave_ps));
    let both = simulate(&program, &machine, Runs::default()).expect("runs");
    assert_eq!((both.wave_ps(), both.backward.wave_ps), (first.wave_ps, 0));
}

/// Latency of a call and its bytes, as the table of an exchange says.
fn transfer_ps(points: &[(u64, f64)], bytes: u64) -> u64 {
    let after = points.partition_point(|point| point.0 <= bytes);
    let monotone: Vec<f64> = (0..points.len())
        .map(|i| {
            let below = points[..=i].iter().map(|p| p.1).fold(0.0, f64::max);
            let above = points[i..].iter().map(|p| p.1).fold(f64::MAX, f64::min);
            500.0 * (below + above)
        })
        .collect();
    let share = (bytes - points[after - 1].0) as f64 / (points[after].0 - points[after - 1].0) as f64;
    (monotone[after - 1] + (monotone[after] - monotone[after - 1]) * share) as u64
}

#[test]
fn instructions_wait_for_their_stream_their_events_and_their_peers() {
    let mut machine = machine(COPY_ENGINES, vec![0, 0]);
    machine.linear.forward_ps_per_token = 1000.0;
    let mut builder = Builder::new(2);
    let routes = builder.route(&[(0, 1, 388)]);
    let call = builder.call(routes, 1000);
    let early = builder.push(0, 0, InstrKind::Linear { tokens: 5 }, &[]);
    builder.push(0, 1, InstrKind::Transfer { call }, &[early]);
    builder.push(0, 0, InstrKind::Linear { tokens: 7 }, &[]);
    let late = builder.push(1, 0, InstrKind::Linear { tokens: 50 }, &[]);
    let arrived = builder.push(1, 1, InstrKind::Transfer { call }, &[late]);
    builder.push(1, 0, InstrKind::Linear { tokens: 1 }, &[arrived]);
    let times = run(&builder.program(), &machine);
    let compute: u64 = 51_000;
    assert_eq!(times.compute_only_ps, Some(compute));
    // Latency of a call and its bytes, from when the later rank has posted it.
    let points = &machine.pricing.profile().intra_node.copy_engines.points_bytes_ns;
    let transfer = transfer_ps(points, 388_000);
    assert!(times.rank_end_ps[0].abs_diff(50_000 + transfer) < 10, "{} {}", times.rank_end_ps[0], 50_000 + transfer);
    assert!(times.rank_end_ps[1].abs_diff(51_000 + transfer) < 10);
    assert!(times.transfers_only_ps.is_some_and(|ps| ps.abs_diff(transfer) < 10));
}

/// Attention of `tokens` nanoseconds on both cards with an exchange of `rows` MiB each way under it.
fn overlapped(tokens: u32, rows: u64, transport: Transport) -> (PassTimes, f64) {
    let mut machine = machine(Overrides { transport: Some(transport), ..Overrides::default() }, vec![0, 0]);
    machine.linear.forward_ps_per_token = 1000.0;
    let mut builder = Builder::new(2);
    let routes = builder.route(&[(0, 1, rows), (1, 0, rows)]);
    let call = builder.call(routes, 1 << 20);
    for rank in 0..2 {
        builder.push(rank, 0, InstrKind::Linear { tokens }, &[]);
        builder.push(rank, 1, InstrKind::Transfer { call }, &[]);
    }
    let times = run(&builder.program(), &machine);
    let ms = times.wave_ps as f64 / 1e9;
    (times, ms)
}

#[test]
fn overlap_costs_what_was_measured() {
    for transport in [Transport::Nccl, Transport::CopyEngines] {
        let overrides = Overrides { transport: Some(transport), ..Overrides::default() };
        let factors = machine(overrides, vec![0, 0]).pricing.profile().overlap().clone();
        // An exchange that outlasts attention runs at the measured share of its rate as long as attention does.
        let (times, ms) = overlapped(20_000_000, 20_000, transport);
        let alone = times.transfers_only_ps.map_or(0.0, |ps| ps as f64 / 1e9);
        assert!((50.0..65.0).contains(&alone), "{alone}");
        let expected = 20.0 + alone - 20.0 * factors.transfer_rate;
        assert!((ms / expected - 1.0).abs() < 0.005, "{transport:?}: {ms} against {expected}");
        // Attention that outlasts the exchange is as much slower as was measured while the exchange lasts.
        let expected = 150.0 + alone / factors.transfer_rate * (1.0 / factors.compute_rate - 1.0);
        let (_, ms) = overlapped(150_000_000, 20_000, transport);
        assert!((ms / expected - 1.0).abs() < 0.005, "{transport:?}: {ms} against {expected}");
    }
}

#[test]
fn topology_and_profile_change_the_answer() {
    let program = pipelined(8);
    let wave = |overrides, nodes: &[u32]| run(&program, &machine(overrides, nodes.to_vec())).wave_ps;
    let (one, two, all) = ([0; 8], [0, 0, 0, 0, 1, 1, 1, 1], [0, 1, 2, 3, 4, 5, 6, 7]);
    let base = Overrides::default();
    let slow = Overrides { network_bandwidth: "100 Gb/s".parse().ok(), ..base };
    let oversubscribed = Overrides { oversubscription: Some(8.0), ..base };
    let shared = Overrides { nic: Some(Nic::PerNode), ..base };
    assert!(wave(base, &one) < wave(base, &two));
    assert!(wave(base, &two) < wave(base, &all));
    assert!(wave(base, &two) < wave(slow, &two));
    assert!(wave(base, &two) < wave(oversubscribed, &two));
    assert!(wave(base, &two) < wave(shared, &two));
    assert_ne!(wave(base, &one), wave(COPY_ENGINES, &one));
    assert_eq!(wave(base, &one), wave(slow, &one), "one node needs no network");
}

#[test]
fn card_speeds_are_seeded_and_slow_the_wave() {
    let mut machine = machine(Overrides { card_relative_sd: Some(0.05), ..Overrides::default() }, vec![0; 8]);
    let program = pipelined(8);
    let nominal = run(&program, &machine).wave_ps;
    let factors = |seed| machine.pricing.profile().card_time_factors(8, seed);
    let (first, other) = (factors(1), factors(2));
    assert_eq!(
        first,
        machine.pricing.profile().card_time_factors(100, 1)[..8],
        "a card's speed does not depend on the others"
    );
    assert_ne!(first, other);
    machine.time_factors = first;
    assert_ne!(run(&program, &machine).wave_ps, nominal);
}

fn error(builder: Builder, nodes: Vec<u32>) -> SimError {
    let machine = machine(Overrides::default(), nodes);
    simulate(&builder.program(), &machine, Runs::ALL).expect_err("must be refused")
}

#[test]
fn broken_programs_are_refused() {
    assert!(matches!(error(Builder::new(2), vec![0]), SimError::Ranks { program: 2, machine: 1 }));

    let mut waits = Builder::new(1);
    let ahead = InstrId { stream: 1, index: 0 };
    waits.push(0, 0, InstrKind::Linear { tokens: 1 }, &[ahead]);
    waits.push(0, 1, InstrKind::Linear { tokens: 1 }, &[InstrId { stream: 0, index: 0 }]);
    assert!(matches!(error(waits, vec![0]), SimError::Stuck { rank: 0, .. }));

    let mut missing = Builder::new(1);
    missing.push(0, 0, InstrKind::Linear { tokens: 1 }, &[InstrId { stream: 4, index: 0 }]);
    assert!(error(missing, vec![0]).to_string().contains("a dependency is out of range"));

    let mut alone = Builder::new(2);
    let routes = alone.route(&[(0, 1, 5)]);
    let call = alone.call(routes, 8);
    alone.push(0, 1, InstrKind::Transfer { call }, &[]);
    assert!(error(alone, vec![0, 0]).to_string().contains("call 0, which rank 1 never posts"));

    let mut twice = Builder::new(2);
    let routes = twice.route(&[(0, 1, 5)]);
    let call = twice.call(routes, 8);
    twice.push(0, 1, InstrKind::Transfer { call }, &[]);
    twice.push(0, 1, InstrKind::Transfer { call }, &[]);
    assert!(error(twice, vec![0, 0]).to_string().contains("posts twice"));

    let mut outside = Builder::new(1);
    let routes = outside.route(&[(0, 9, 5)]);
    let call = outside.call(routes, 8);
    outside.push(0, 1, InstrKind::Transfer { call }, &[]);
    assert!(matches!(error(outside, vec![0]), SimError::Index { .. }));

    for kind in [
        InstrKind::Transfer { call: 3 },
        InstrKind::Launch {
            tiles: Span { start: 0, end: 5 },
            mask: Mask::Full,
            q_heads: skewbench_plan::HeadRange::new(0, 1),
            kv_heads: skewbench_plan::HeadRange::new(0, 1),
        },
    ] {
        let mut broken = Builder::new(1);
        broken.push(0, 0, kind, &[]);
        assert!(matches!(error(broken, vec![0]), SimError::Index { .. }), "{kind:?}");
    }

    let mut long = Builder::new(1);
    long.push(0, 0, InstrKind::Pack { call: 0, bytes: u64::MAX }, &[]);
    long.push(0, 0, InstrKind::Pack { call: 0, bytes: u64::MAX }, &[]);
    assert!(matches!(error(long, vec![0]), SimError::Overflow { rank: 0, stream: 0, index: 1 }));
}

#[test]
fn four_thousand_ranks_run() {
    let program = pipelined(4096);
    let machine = machine(Overrides::default(), (0..4096).map(|r| r / 8).collect());
    assert!(run(&program, &machine).wave_ps > 0);
}

#[test]
fn given_launch_times_replace_prices_and_nothing_else() {
    let program = pipelined(8);
    let machine = machine(Overrides::default(), vec![0, 0, 0, 0, 1, 1, 1, 1]);
    let priced = simulate(&program, &machine, Runs::ALL).expect("runs");
    let same = simulate_launches(&program, &machine, Runs::ALL, &|launch| launch.price_ps).expect("runs");
    assert_eq!(priced, same);
    let slow = |launch: Launch| if launch.rank == 5 { 3 * launch.price_ps } else { launch.price_ps };
    let slowed = simulate_launches(&program, &machine, Runs::ALL, &slow).expect("runs");
    let mut expected = priced.forward.launch_ps.clone();
    expected[5] *= 3;
    assert_eq!(slowed.forward.launch_ps, expected);
    assert!(slowed.forward.rank_end_ps[5] > 2 * priced.forward.rank_end_ps[5]);
    assert_eq!(slowed.forward.transfers_only_ps, priced.forward.transfers_only_ps);
    assert_eq!(slowed.forward.inter_bytes, priced.forward.inter_bytes);
}
