//! Bodies of the fuzz targets: each takes arbitrary bytes and must return; it says whether they were accepted. The tests run
//! them with random input.

use skewbench_plan::check::{Limits, check};
use skewbench_plan::{AttentionShape, Domain, FlopsCost, PackedSequence};

use crate::manifest::ManifestFile;
use crate::protocol::{read_hello, read_response};
use crate::session::PLAN;
use crate::{placement, planner};

/// Number of the request that [`answer`] takes its input to answer.
pub const ASKED: u64 = 1;

/// Runs `with` on a domain of two sequences of eight tokens on two ranks each.
fn on_domain<T>(with: impl FnOnce(&Domain<'_>) -> T) -> T {
    let sequences = [PackedSequence::new([5, 3]), PackedSequence::new([8])];
    let cost = FlopsCost { flops_per_s: 4e14, bytes_per_s: 4e10 };
    with(&Domain {
        sequences: &[&sequences[0], &sequences[1]],
        cp: 2,
        shape: AttentionShape { q_heads: 4, kv_heads: 2, head_dim: 8 },
        nodes: &[0, 0, 1, 1],
        cost: &cost,
        time_factors: &[],
    })
}

/// Answer to `hello`; one that is accepted stays acceptable when it is written and read again, and bounds the load.
pub fn hello(bytes: &[u8]) -> bool {
    let Ok(hello) = read_hello(bytes) else { return false };
    let written = serde_json::to_vec(&hello).expect("an answer that was read can be written");
    assert_eq!(read_hello(&written).as_ref(), Ok(&hello));
    on_domain(|domain| {
        let pairs: u64 = domain.sequences.iter().map(|s| s.pairs()).sum();
        let mean = pairs * u64::from(domain.shape.q_heads) / u64::from(domain.ranks());
        assert!(planner::most_load(hello.load_bound, domain) >= mean);
    });
    true
}

/// Answer to `plan` or `place`: a plan made of an assignment is right, a whole plan that is taken can be checked, and waves
/// that are taken hold every sequence once.
pub fn answer(bytes: &[u8]) -> bool {
    let Ok(response) = read_response(bytes, ASKED, PLAN) else { return false };
    let derived = response.assignment.and_then(|assigned| {
        let plan = on_domain(|domain| planner::derive("fuzz", domain, assigned)).ok()?;
        assert_eq!(check(&plan, &Limits::default()).err(), None);
        Some(plan)
    });
    let whole = response.plan.and_then(|plan| {
        let plan = on_domain(|domain| planner::accept("fuzz", domain, *plan)).ok()?;
        // Right or wrong, the checker must come to an end.
        drop(check(&plan, &Limits::default()));
        Some(plan)
    });
    let waves = response.waves.and_then(|waves| {
        let waves = placement::accept(waves, 4, 2).ok()?;
        let mut placed: Vec<u32> = waves.iter().flat_map(|wave| wave.sequences.iter().copied()).collect();
        placed.sort_unstable();
        assert_eq!(placed, [0, 1, 2, 3]);
        Some(waves)
    });
    derived.is_some() || whole.is_some() || waves.is_some()
}

/// Manifest; one that is accepted names a program, and its time limits can be waited for.
pub fn manifest(bytes: &[u8]) -> bool {
    let Ok(file) = ManifestFile::parse(&String::from_utf8_lossy(bytes), "fuzz.toml") else { return false };
    assert!(file.command().is_ok());
    let (timeout, hello_timeout) = file.limits();
    assert!(timeout.max(hello_timeout).as_secs() <= 86_400);
    true
}
