//! Prices against the measured rows, monotonicity, golden values.

use proptest::prelude::*;
use skewbench_plan::{Cost, LaunchShape, Mask, Pass, TileShape};
use skewbench_sim::{Pricing, Profile, TableError};

fn pricing() -> Pricing {
    Pricing::new(Profile::named("h200").expect("built in"))
}

fn price(pricing: &Pricing, pass: Pass, mask: Mask, heads: u32, tiles: &[(u32, u32)]) -> u64 {
    let tiles: Vec<TileShape> = tiles.iter().map(|&(q, k)| TileShape { q, k }).collect();
    pricing.launch_ps(&LaunchShape { pass, mask, q_heads: heads, kv_heads: 1, head_dim: 128, tiles: &tiles })
}

fn quantile(errors: &[TableError], share: f64, of: impl Fn(&TableError) -> bool) -> f64 {
    let mut found: Vec<f64> = errors.iter().filter(|e| of(e)).map(|e| e.relative().abs()).collect();
    assert!(found.len() >= 8, "{}", found.len());
    found.sort_by(f64::total_cmp);
    found[((found.len() - 1) as f64 * share) as usize]
}

#[test]
fn rows_of_the_profile_are_met_as_well_as_they_repeat() {
    // The aim of docs/CALIBRATION.md: 4% in the median, 12% for 95 of 100. A law does not go through rows that one slow clock spoilt.
    let errors = pricing().table_errors();
    for pass in [Pass::Forward, Pass::Backward] {
        for table in ["bottom_right", "square", "rectangle"] {
            let of = |e: &TableError| e.pass == pass && e.table == table && e.measured_ns > 1e5;
            let (median, most) = (quantile(&errors, 0.5, of), quantile(&errors, 0.95, of));
            assert!(median < 0.04 && most < 0.12, "{pass:?} {table}: {median} {most}");
        }
        // Clocks under the power limit differ more than shapes do: windows of like documents took 1.73 to 2.40 us a step.
        let ragged = |e: &TableError| e.pass == pass && e.tiles > 1;
        let (median, most) = (quantile(&errors, 0.5, ragged), quantile(&errors, 0.95, ragged));
        assert!(median < 0.08 && most < 0.17, "{pass:?} ragged: {median} {most}");
        // Calls of tens of microseconds: launches by the host, which repeat worse.
        let short = |e: &TableError| e.pass == pass && e.measured_ns <= 1e5;
        assert!(quantile(&errors, 0.5, short) < 0.06, "{pass:?} short");
    }
}

#[test]
fn golden_prices() {
    let pricing = pricing();
    let found: Vec<u64> = [
        (Pass::Forward, Mask::Causal, 32, vec![(8192, 131_072)]),
        (Pass::Backward, Mask::Causal, 32, vec![(8192, 131_072)]),
        (Pass::Forward, Mask::Causal, 4, vec![(65_536, 65_536)]),
        (Pass::Backward, Mask::Causal, 4, vec![(65_536, 65_536)]),
        (Pass::Forward, Mask::Full, 8, vec![(2048, 32_768)]),
        (Pass::Forward, Mask::CausalExclusive, 4, vec![(65_537, 65_537)]),
        (Pass::Forward, Mask::Causal, 2, vec![(100, 100), (3000, 3000), (50_000, 50_000)]),
        (Pass::Backward, Mask::Causal, 6, vec![(100, 100), (3000, 5000), (4096, 50_000)]),
        (Pass::Forward, Mask::Full, 300, vec![(5_000_000, 6_000_000)]),
        (Pass::Backward, Mask::Full, 1, vec![]),
    ]
    .into_iter()
    .map(|(pass, mask, heads, tiles)| price(&pricing, pass, mask, heads, &tiles))
    .collect();
    assert_eq!(found, GOLDEN);
}

const GOLDEN: [u64; 10] = [
    28_071_991_091,
    84_707_838_370,
    6_873_309_042,
    19_797_182_236,
    404_223_333,
    6_873_309_042,
    2_464_001_274,
    3_264_376_898,
    8_069_766_672_701_122,
    26_591_999,
];

#[test]
fn squares_do_not_pay_for_the_bottom_right_backward() {
    let pricing = pricing();
    let square = price(&pricing, Pass::Backward, Mask::Causal, 8, &[(32_768, 32_768)]);
    let mixed = price(&pricing, Pass::Backward, Mask::Causal, 8, &[(32_768, 32_768), (128, 256)]);
    assert!(mixed > 19 * square / 10, "one call has one mask");
}

#[test]
fn small_tiles_in_one_call_reach_the_rate_of_a_large_one() {
    let pricing = pricing();
    let tile = (512, 32_768);
    let alone = price(&pricing, Pass::Forward, Mask::Causal, 4, &[tile]);
    let many = price(&pricing, Pass::Forward, Mask::Causal, 4, &[tile; 64]);
    assert!(many < 14 * alone, "64 tiles: {many} ps, one: {alone} ps");
}

#[test]
fn a_long_block_that_is_issued_late_ends_late() {
    let pricing = pricing();
    let (wide, long) = ((6000, 12_000), (400, 70_000));
    let last = price(&pricing, Pass::Forward, Mask::Full, 4, &[wide, wide, wide, long]);
    let first = price(&pricing, Pass::Forward, Mask::Full, 4, &[long, wide, wide, wide]);
    assert!(10 * last > 12 * first, "{last} {first}");
}

#[test]
fn backward_steps_are_of_64_rows() {
    let pricing = pricing();
    let [a, b, c] = [300, 320, 321].map(|q| price(&pricing, Pass::Backward, Mask::Full, 4, &[(q, 65_536)]) as f64);
    assert!(b / a < 1.005 && c / b > 1.08, "{a} {b} {c}");
}

#[test]
fn keys_that_fill_no_block_slow_a_tile_alone() {
    let pricing = pricing();
    for (pass, mask, range) in [
        (Pass::Forward, Mask::Causal, 1.0..1.02),
        (Pass::Forward, Mask::Full, 1.08..1.15),
        (Pass::Backward, Mask::Causal, 1.03..1.06),
        (Pass::Backward, Mask::Full, 1.03..1.06),
    ] {
        let of = |k| price(&pricing, pass, mask, 4, &[(2048, k)]) as f64;
        let share = of(65_537) / of(65_536);
        assert!(range.contains(&share), "{pass:?} {mask:?}: {share}");
    }
}

#[test]
fn gradients_of_shared_keys_are_summed() {
    let pricing = pricing();
    let of = |pass, kv, tiles: &[(u32, u32)]| pricing.call_ps(pass, Mask::Causal, (16, kv), 128, tiles.iter().copied());
    for tiles in [&[(256, 256)][..], &[(2048, 2048)], &[(256, 256); 64]] {
        assert_eq!(of(Pass::Forward, 16, tiles), of(Pass::Forward, 2, tiles));
        assert!(of(Pass::Backward, 16, tiles) < of(Pass::Backward, 2, tiles), "{tiles:?}");
    }
}

#[test]
fn heads_of_another_size_are_scaled_by_flops() {
    let pricing = pricing();
    assert!(pricing.head_dim_scaled(64) && !pricing.head_dim_scaled(128));
    let of = |dim| pricing.call_ps(Pass::Forward, Mask::Causal, (32, 4), dim, std::iter::once((32_768, 32_768)));
    let overhead = pricing.profile().attention.launch_overhead_ns.forward * 1e3;
    assert!(((of(64) as f64 - overhead) / (of(128) as f64 - overhead) - 0.5).abs() < 1e-9);
}

fn any_pass() -> impl Strategy<Value = Pass> {
    prop_oneof![Just(Pass::Forward), Just(Pass::Backward)]
}

fn size() -> impl Strategy<Value = u32> {
    (0u32..23, 0u32..1 << 22).prop_map(|(bits, x)| 1 + (x & ((1 << bits) - 1)))
}

fn tiles() -> impl Strategy<Value = Vec<(u32, u32)>> {
    prop::collection::vec((size(), size()), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn more_rectangle_costs_no_less(pass in any_pass(), heads in 1u32..200, tiles in tiles(), more in size(), which in any::<prop::sample::Index>()) {
        let pricing = pricing_once();
        let before = price(pricing, pass, Mask::Full, heads, &tiles);
        prop_assert!(price(pricing, pass, Mask::Full, heads + 1, &tiles) >= before, "heads");
        let at = which.index(tiles.len());
        let mut larger = tiles.clone();
        larger[at].0 += more;
        if !faster_kernel(&tiles, &larger) {
            prop_assert!(price(pricing, pass, Mask::Full, heads, &larger) >= before, "rows");
        }
        let mut larger = tiles.clone();
        larger[at].1 += more;
        if !faster_kernel(&tiles, &larger) {
            prop_assert!(price(pricing, pass, Mask::Full, heads, &larger) >= before, "keys");
        }
        let mut larger = tiles;
        larger.push((more, more));
        prop_assert!(price(pricing, pass, Mask::Full, heads, &larger) >= before, "tiles");
    }

    #[test]
    fn more_causal_work_costs_no_less(pass in any_pass(), heads in 1u32..200, tiles in tiles(), more in size(), which in any::<prop::sample::Index>()) {
        let pricing = pricing_once();
        let before = price(pricing, pass, Mask::Causal, heads, &tiles);
        prop_assert!(price(pricing, pass, Mask::Causal, heads + 1, &tiles) >= before, "heads");
        let at = which.index(tiles.len());
        let mut larger = tiles.clone();
        larger[at].1 += more;
        // Rows that see no key are dropped: keys let a tile alone reach 1024 rows, too.
        let no_faster = pass == Pass::Forward || !faster_kernel(&tiles, &larger);
        if no_faster && own_kernel(&tiles) == own_kernel(&larger) {
            prop_assert!(price(pricing, pass, Mask::Causal, heads, &larger) >= before, "keys {tiles:?} {larger:?}");
        }
        // Across the diagonal, by little.
        let square = price(pricing, pass, Mask::Causal, heads, &[(more, more)]);
        prop_assert!(price(pricing, pass, Mask::Causal, heads, &[(more, more + 1)]) >= square, "one key more than rows");
        let mut larger = tiles.clone();
        larger.push((more, more));
        prop_assert!(price(pricing, pass, Mask::Causal, heads, &larger) >= before, "squares");
        larger.push((more, more + 1));
        prop_assert!(price(pricing, pass, Mask::Causal, heads, &larger) >= before, "bottom-right tiles");
        // A tile whose rows reach its keys becomes a square, for which there is a faster kernel; short of that, more rows cost no less.
        let mut larger = tiles.clone();
        larger[at].0 += more;
        if larger[at].0 < larger[at].1 && !faster_kernel(&tiles, &larger) {
            prop_assert!(price(pricing, pass, Mask::Causal, heads, &larger) >= before, "rows");
        }
        let exclusive: Vec<(u32, u32)> = tiles.iter().map(|&(q, k)| (q, k + 1)).collect();
        prop_assert_eq!(price(pricing, pass, Mask::CausalExclusive, heads, &exclusive), before);
    }
}

/// Whether a causal call runs the kernel of one tile alone.
fn own_kernel(tiles: &[(u32, u32)]) -> bool {
    matches!(tiles, [(q, k)] if *q.min(k) >= 1024)
}

/// Cards, too, are faster with more: a tile alone runs a kernel of its own from 1024 rows (512 rows took longer), and another one
/// where keys fill blocks of 128 (one key more took 10% longer forward without a mask, 3% backward).
fn faster_kernel(before: &[(u32, u32)], after: &[(u32, u32)]) -> bool {
    match (before, after) {
        ([(q, k)], [(rows, keys)]) => (*q < 1024 && *rows >= 1024) || (k % 128 != 0 && keys % 128 == 0),
        _ => false,
    }
}

fn pricing_once() -> &'static Pricing {
    static PRICING: std::sync::OnceLock<Pricing> = std::sync::OnceLock::new();
    PRICING.get_or_init(pricing)
}

#[test]
fn marginal_prices_are_what_a_tile_adds_to_a_call_that_fills_the_card() {
    let pricing = pricing();
    let tiles = [(4096, 4096), (8192, 8192), (1000, 1000)];
    let slanted = [(4096, 65_536), (2048, 100_000), (8192, 32_768)];
    for pass in [Pass::Forward, Pass::Backward] {
        for (mask, tiles) in [(Mask::Causal, tiles), (Mask::Causal, slanted), (Mask::Full, slanted)] {
            let shapes = tiles.map(|(q, k)| TileShape { q, k });
            let marginal = |tiles: &[TileShape]| {
                pricing.marginal_ps(&LaunchShape { pass, mask, q_heads: 32, kv_heads: 1, head_dim: 128, tiles })
            };
            let sum: u64 = shapes.iter().map(|shape| marginal(std::slice::from_ref(shape))).sum();
            assert!(sum.abs_diff(marginal(&shapes)) <= 3);
            // Beside the overhead a call costs more by the droop of long calls and by what is idle at its end.
            let call = price(&pricing, pass, mask, 32, &tiles) as f64;
            let share = call / sum as f64;
            assert!((1.0..1.3).contains(&share), "{pass:?} {mask:?}: {call} against {sum}");
        }
    }
}
