//! Link model against exact max-min fair sharing by progressive filling.

use crate::common::{Builder, machine_of};
use proptest::prelude::*;
use skewbench_exec::InstrKind;
use skewbench_plan::Pass;
use skewbench_sim::{Machine, Overrides, Profile, Runs, Transport, profile::Nic, simulate_pass};

const ROW_BYTES: u64 = 1 << 20;
const RANKS: u32 = 8;
const LATENCY_NS: f64 = 10_000.0;
const GIB_NS: f64 = 2_777_376.0;

/// The h200 with copy engines of one rate at all sizes, which the exact solution needs.
fn linear_link() -> Profile {
    let mut profile = Profile::named("h200").expect("built in");
    profile.intra_node.copy_engines.points_bytes_ns = vec![(1, LATENCY_NS), (1 << 30, GIB_NS)];
    profile
}

/// Links of a flow: indices into capacities.
fn path(machine: &Machine, from: u32, to: u32) -> Vec<usize> {
    let (from, to, ranks) = (from as usize, to as usize, RANKS as usize);
    let (a, b) = (machine.nodes[from] as usize, machine.nodes[to] as usize);
    if a == b {
        return vec![from, ranks + to];
    }
    vec![2 * ranks + from, 3 * ranks + to, 4 * ranks + a, 5 * ranks + b]
}

/// Seconds a byte, inverted: bytes per picosecond of every link.
fn capacities(machine: &Machine, oversubscription: f64) -> Vec<f64> {
    let ranks = RANKS as usize;
    let intra = (1u64 << 30) as f64 / ((GIB_NS - LATENCY_NS) * 1e3);
    let port = 50e9 * 0.9 / 1e12;
    let mut all = vec![intra; 2 * ranks];
    all.extend(vec![port; 2 * ranks]);
    for _ in 0..2 {
        all.extend((0..ranks as u32).map(|node| {
            let cards = machine.nodes.iter().filter(|n| **n == node).count();
            port * cards.max(1) as f64 / oversubscription
        }));
    }
    all
}

/// Makespan in picoseconds of flows (path, bytes, release time) under max-min fair sharing.
fn max_min(flows: &[(Vec<usize>, f64, f64)], capacities: &[f64]) -> f64 {
    let mut left: Vec<f64> = flows.iter().map(|f| f.1).collect();
    let mut now = 0.0f64;
    loop {
        let active: Vec<usize> = (0..flows.len()).filter(|i| left[*i] > 1e-6 && flows[*i].2 <= now).collect();
        let next_release = flows.iter().map(|f| f.2).filter(|t| *t > now).fold(f64::INFINITY, f64::min);
        if active.is_empty() {
            if next_release.is_infinite() {
                return now;
            }
            now = next_release;
            continue;
        }
        let mut rate = vec![0.0; flows.len()];
        let mut frozen = vec![false; flows.len()];
        let mut room = capacities.to_vec();
        while active.iter().any(|i| !frozen[*i]) {
            let users = |link: usize| active.iter().filter(|i| !frozen[**i] && flows[**i].0.contains(&link)).count();
            let (link, fair) = (0..room.len())
                .filter(|link| users(*link) > 0)
                .map(|link| (link, room[link] / users(link) as f64))
                .min_by(|a, b| a.1.total_cmp(&b.1))
                .expect("an active flow has links");
            for &i in active.iter().filter(|i| flows[**i].0.contains(&link)) {
                if !frozen[i] {
                    frozen[i] = true;
                    rate[i] = fair;
                    flows[i].0.iter().for_each(|l| room[*l] -= fair);
                }
            }
        }
        let step = active.iter().map(|i| left[*i] / rate[*i]).fold(next_release - now, f64::min);
        active.iter().for_each(|i| left[*i] -= rate[*i] * step);
        now += step;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn call_makespan_lies_between_the_bottleneck_and_max_min(
        flows in prop::collection::vec((0..RANKS, 0..RANKS, 1u64..2000), 1..40),
        waits in prop::collection::vec(0u32..4, RANKS as usize),
        node_size in 1u32..=RANKS,
        oversubscription in prop_oneof![Just(1.0), Just(4.0)],
    ) {
        let flows: Vec<(u32, u32, u64)> = flows.into_iter().filter(|f| f.0 != f.1).collect();
        let overrides = Overrides {
            transport: Some(Transport::CopyEngines),
            network_latency_ns: Some(0.0),
            oversubscription: Some(oversubscription),
            nic: Some(Nic::PerCard),
            ..Overrides::default()
        };
        let mut machine = machine_of(linear_link(), overrides, (0..RANKS).map(|r| r / node_size).collect());
        machine.linear.forward_ps_per_token = 1e9;
        let mut builder = Builder::new(RANKS as usize);
        let routes = builder.route(&flows);
        let call = builder.call(routes, ROW_BYTES);
        for (rank, wait) in waits.iter().enumerate() {
            let late = builder.push(rank, 0, InstrKind::Linear { tokens: *wait }, &[]);
            builder.push(rank, 1, InstrKind::Transfer { call }, &[late]);
        }
        let times = simulate_pass(&builder.program(), Pass::Forward, &machine, Runs::default()).expect("runs");
        let found = flows.iter().map(|f| times.rank_end_ps[f.0 as usize]).max().unwrap_or(0) as f64;
        if flows.is_empty() {
            return Ok(());
        }
        let latency = LATENCY_NS * 1e3;
        let capacities = capacities(&machine, oversubscription);
        let paths: Vec<(Vec<usize>, f64, f64)> = flows
            .iter()
            .map(|&(from, to, rows)| {
                let release = f64::from(waits[from as usize].max(waits[to as usize])) * 1e9;
                (path(&machine, from, to), (rows * ROW_BYTES) as f64, release)
            })
            .collect();
        // Every link must serve what is released at or after any moment.
        let bound = (0..capacities.len())
            .flat_map(|link| (0..4).map(move |moment| (link, f64::from(moment) * 1e9)))
            .map(|(link, moment)| {
                let bytes: f64 = paths.iter().filter(|f| f.2 >= moment && f.0.contains(&link)).map(|f| f.1).sum();
                if bytes > 0.0 { moment + bytes / capacities[link] } else { 0.0 }
            })
            .fold(0.0, f64::max);
        let exact = max_min(&paths, &capacities);
        let found = found - latency;
        prop_assert!(found >= bound * (1.0 - 1e-6) - 1e3, "{found} below the bound {bound}");
        prop_assert!(found <= exact * (1.0 + 1e-6) + 1e3, "{found} above max-min {exact}");
        prop_assert!(found >= exact * 0.8, "{found} far below max-min {exact}");
    }
}
