use skewbench_cuda::gemm::GemmShape;
use skewbench_cuda::run::Transport;
use skewbench_plan::{LaunchShape, Mask, Pass, TileShape, causal_pairs};
use skewbench_sim::Pricing;
use skewbench_workloads::{StreamOptions, WindowStream, Workload};

use crate::cells::step_seed;
use crate::failure::Failure;
use crate::replay::{Prices, Shape};

/// What a launch is an example of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// One tile.
    Single,
    /// Squares of the documents of a packed window.
    Window,
    /// Equal tiles with unequal prefixes.
    Prefix,
    /// Tiles of unequal rows and keys.
    Mixed,
    /// Tiles of one size.
    Equal,
}

impl Family {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Window => "window",
            Self::Prefix => "prefix",
            Self::Mixed => "mixed",
            Self::Equal => "equal",
        }
    }
}

/// What a point measures.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// A kernel call.
    Launch(Family, Shape),
    /// A matrix product.
    Gemm(GemmShape),
    /// A copy of rows, bytes.
    Copy(u64),
    /// A merge of outputs, bytes.
    Merge(u64),
    /// An exchange between cards, bytes.
    Exchange(Transport, u64),
    /// Attention and an exchange, each alone and under the other.
    Overlap(Transport),
}

/// Something to measure, with a name that no other point has.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Name.
    pub name: String,
    /// What is measured.
    pub work: Work,
    /// Coarse first: 0 is what a profile needs at least.
    pub level: u8,
    /// Predicted seconds of the card.
    pub seconds: f64,
}

/// Rows of an overlap: what is timed, alone and under the other.
const OVERLAP_ROWS: [&str; 4] = ["compute alone", "transfer alone", "compute together", "transfer together"];

impl Point {
    /// Names of what is measured, each with repeats of its own.
    pub fn rows(&self) -> Vec<String> {
        match self.work {
            Work::Overlap(_) => OVERLAP_ROWS.iter().map(|row| format!("{} {row}", self.name)).collect(),
            _ => vec![self.name.clone()],
        }
    }
}

const HEAD_DIM: u16 = 128;
/// Query and KV heads: a whole layer, what CP ranks and head pieces hold of it, and a layer without groups.
const HEADS: [(u32, u32); 7] = [(32, 4), (8, 1), (16, 2), (4, 1), (2, 1), (1, 1), (16, 16)];
/// Longer calls would eat the budget; the law beyond the table continues it.
const LONGEST_S: f64 = 0.6;
/// Multiprocessors of the cards for which the refinement is placed; on others it is a grid like any.
const MULTIPROCESSORS: u32 = 132;
/// Rows or keys of a block of the kernels.
const BLOCK: u32 = 128;
const BOTH: [Pass; 2] = [Pass::Forward, Pass::Backward];

struct List<'a> {
    points: Vec<Point>,
    pricing: &'a Pricing,
}

impl List<'_> {
    fn launch(&mut self, level: u8, family: Family, what: &str, mask: Mask, heads: (u32, u32), tiles: &[TileShape]) {
        for pass in BOTH {
            let (q_heads, kv_heads) = heads;
            let launch = LaunchShape { pass, mask, q_heads, kv_heads, head_dim: HEAD_DIM, tiles };
            let Some(shape) = Shape::new(&launch) else { continue };
            let mut prices = Prices::default();
            let number = prices.add(shape.clone(), self.pricing);
            let seconds = prices.seconds([number]).seconds;
            let name = format!("{what} {} {} {q_heads}:{kv_heads}", shape.mask_name(), shape.pass_name());
            if seconds <= LONGEST_S * 5.0 && prices.get(number).1 <= LONGEST_S * 1e9 {
                self.push(Point { name, work: Work::Launch(family, shape), level, seconds });
            }
        }
    }

    fn single(&mut self, level: u8, mask: Mask, heads: (u32, u32), q: u32, k: u32) {
        self.launch(level, Family::Single, &format!("single {q}x{k}"), mask, heads, &[TileShape { q, k }]);
    }

    fn push(&mut self, point: Point) {
        if !self.points.iter().any(|p| p.name == point.name) {
            self.points.push(point);
        }
    }

    /// Coarse levels first; inside a level in an order that mixes sizes and heads, so that a beginning of it is spread.
    fn ordered(mut self, seed: u64) -> Vec<Point> {
        let place = |p: &Point| *blake3::hash(format!("{seed} {}", p.name).as_bytes()).as_bytes();
        self.points.sort_by_cached_key(|p| (p.level, place(p)));
        self.points
    }
}

/// Everything that calibration measures, priced by a profile that is known.
///
/// # Errors
/// Never for the presets that are shipped.
pub fn points(pricing: &Pricing, seed: u64) -> Result<Vec<Point>, Failure> {
    let mut list = List { points: Vec::new(), pricing };
    // What a profile cannot be without: the smallest call and a few rows of every table.
    list.single(0, Mask::Causal, (1, 1), BLOCK, BLOCK);
    for (q, k) in [(1024, 1024), (8192, 8192), (32_768, 32_768)] {
        list.single(0, Mask::Causal, (32, 4), q, k);
        list.single(0, Mask::Full, (32, 4), q / 4, k);
    }
    for (q, k) in [(1024, 32_768), (4096, 131_072), (4096, 8192), (16_384, 131_072)] {
        list.single(0, Mask::Causal, (32, 4), q, k);
    }
    for rows in [8192, 65_536] {
        for (columns, inner) in [(8192, 8192), (5120, 2048), (2048, 4096), (1536, 2048), (2048, 768)] {
            let shape = GemmShape { rows, columns, inner };
            let name = format!("product {rows}x{columns}x{inner}");
            list.push(Point { name, work: Work::Gemm(shape), level: 0, seconds: 0.05 });
        }
    }
    for exponent in [16, 20, 24, 27, 30] {
        let bytes = 1u64 << exponent;
        for (name, work) in [("copy", Work::Copy(bytes)), ("merge", Work::Merge(bytes))] {
            list.push(Point { name: format!("{name} {bytes}"), work, level: 0, seconds: 0.02 });
        }
    }
    for transport in [Transport::Nccl, Transport::CopyEngines] {
        let name = transport.name();
        for exponent in (12..=30).step_by(2) {
            let bytes = 1u64 << exponent;
            let work = Work::Exchange(transport, bytes);
            list.push(Point { name: format!("exchange {name} {bytes}"), work, level: 0, seconds: 0.05 });
        }
        let name = format!("overlap {name}");
        list.push(Point { name, work: Work::Overlap(transport), level: 0, seconds: 2.0 });
    }
    launches_of_systems(&mut list, seed)?;
    grid(&mut list);
    sizes_that_fill_no_block(&mut list);
    few_tiles(&mut list);
    rounds(&mut list);
    Ok(list.ordered(seed))
}

/// Packed windows, groups of tiles with a common prefix, and unequal tiles.
fn launches_of_systems(list: &mut List<'_>, seed: u64) -> Result<(), Failure> {
    for (preset, heads) in [("paper-256k", [(4, 1), (32, 4), (16, 16)]), ("paper-1m", [(2, 1), (8, 1), (16, 16)])] {
        for (quantile, tiles) in windows(preset, seed, &[0.02, 0.25, 0.5, 0.75, 0.95])? {
            for heads in heads {
                let what = format!("window {preset} q{quantile}");
                list.launch(1, Family::Window, &what, Mask::Causal, heads, &tiles);
            }
        }
    }
    for (count, rows, step) in
        [(4, 4096, 32_768), (8, 4096, 16_384), (16, 4096, 8192), (32, 4096, 4096), (9, 4200, 9001)]
    {
        for heads in [(8, 1), (4, 1), (32, 4)] {
            let tiles = prefixes(count, rows, step);
            list.launch(1, Family::Prefix, &format!("prefix {count}x{rows}+{step}"), Mask::Causal, heads, &tiles);
        }
    }
    let mut draw = Draw { seed: seed ^ 0x6d69_7865_6400, next: 0 };
    for (number, heads) in [(8, 1), (32, 4), (4, 1), (16, 16)].into_iter().cycle().take(12).enumerate() {
        let tiles = mixed(&mut draw);
        for mask in [Mask::Causal, Mask::Full] {
            list.launch(1, Family::Mixed, &format!("mixed {number}"), mask, heads, &tiles);
        }
    }
    Ok(())
}

/// One tile over rows, keys and heads.
fn grid(list: &mut List<'_>) {
    for (place, heads) in HEADS.into_iter().enumerate() {
        let level = if place < 2 { 2 } else { 3 };
        // The law is that of a block, so that few heads need every size; calls of a second tell clocks more than shapes.
        let keys: &[u32] =
            if place < 2 { &[8192, 32_768, 131_072, 262_144, 1_048_576] } else { &[8192, 65_536, 262_144] };
        for exponent in 9..=15 {
            let q = 1u32 << exponent;
            list.single(level, Mask::Causal, heads, q, q);
            for k in keys.iter().copied().filter(|k| *k > q) {
                list.single(level, Mask::Causal, heads, q, k);
            }
        }
        for exponent in [7, 8, 16] {
            list.single(level, Mask::Causal, heads, 1 << exponent, 1 << exponent);
        }
        for (q, k) in [(512, 8192), (1024, 32_768), (2048, 16_384), (4096, 65_536), (8192, 8192), (4096, 131_072)] {
            list.single(level, Mask::Full, heads, q, k);
        }
    }
}

/// Rows or keys that are no multiples of a block, one tile alone and ragged.
fn sizes_that_fill_no_block(list: &mut List<'_>) {
    for heads in [(32, 4), (16, 16), (4, 1), (1, 1)] {
        for (q, k) in
            [(2049, 16_384), (2048, 16_385), (2111, 16_447), (5000, 40_001), (700, 9001), (271, 6003), (301, 70_003)]
        {
            list.single(2, Mask::Causal, heads, q, k);
            list.single(2, Mask::Full, heads, q, k);
        }
        for q in [300, 700, 1500, 3001, 9999] {
            list.single(2, Mask::Causal, heads, q, q);
        }
    }
}

/// Calls of few or small tiles of one size: where multiprocessors are left idle at the end, and where blocks are short.
fn few_tiles(list: &mut List<'_>) {
    for (heads, counts) in [((4, 1), &[2, 3, 5, 8, 16][..]), ((16, 16), &[2, 4]), ((32, 4), &[2, 8])] {
        for count in counts {
            let mut equal = |mask, q: u32, k: u32| {
                let tiles = vec![TileShape { q, k }; *count];
                list.launch(2, Family::Equal, &format!("equal {count}x {q}x{k}"), mask, heads, &tiles);
            };
            equal(Mask::Full, 2048, 32_768);
            equal(Mask::Full, 1001, 9000);
            equal(Mask::Causal, 2048, 32_768);
            equal(Mask::Causal, 4096, 4096);
        }
    }
    for (count, rows) in [(256, 256), (512, 512), (256, 1000)] {
        for heads in [(4, 1), (16, 16)] {
            let tiles = vec![TileShape { q: rows, k: rows }; count];
            list.launch(2, Family::Equal, &format!("equal {count}x {rows}"), Mask::Causal, heads, &tiles);
        }
    }
    for others in [2, 64] {
        let mut tiles = vec![TileShape { q: 32_768, k: 32_768 }];
        tiles.extend(vec![TileShape { q: 1024, k: 1024 }; others]);
        list.launch(2, Family::Mixed, &format!("long and {others}"), Mask::Causal, (2, 1), &tiles);
    }
}

/// One to four blocks a multiprocessor, where the card fills up: whole rounds, and one block more.
fn rounds(list: &mut List<'_>) {
    for heads in [(32, 4), (8, 1), (4, 1), (1, 1)] {
        for rounds in [1, 2, 4] {
            for more in [0, 1] {
                let blocks = (MULTIPROCESSORS * rounds).div_ceil(heads.0) + more;
                let q = (blocks * BLOCK).min(1 << 16);
                list.single(4, Mask::Causal, heads, q, q);
                list.single(4, Mask::Full, heads, q, 16_384);
                // Backward, blocks are of keys.
                list.single(4, Mask::Full, heads, 4096, q);
            }
        }
    }
}

/// Up to 21 tiles of any rows and keys.
fn mixed(draw: &mut Draw) -> Vec<TileShape> {
    (0..2 + draw.below(20))
        .map(|_| {
            let q = draw.size(128, 8000);
            TileShape { q, k: draw.size(q, 120_000) }
        })
        .collect()
}

/// Launches that are in no table, drawn with a seed of their own.
///
/// # Errors
/// As [`points`].
pub fn held_out(pricing: &Pricing, seed: u64) -> Result<Vec<Point>, Failure> {
    let mut draw = Draw { seed: seed ^ 0x6865_6c64_6f75_7400, next: 0 };
    let mut list = List { points: Vec::new(), pricing };
    for i in 0..60u8 {
        let heads = HEADS[draw.below(HEADS.len() as u32) as usize];
        let (mask, square) = [(Mask::Causal, true), (Mask::Causal, false), (Mask::Full, false)][usize::from(i % 3)];
        let q = draw.size(200, 30_000);
        let k = if square { q } else { draw.size(q.max(1000), 600_000) };
        list.single(i / 20, mask, heads, q, k);
    }
    for (preset, heads) in [("paper-256k", [(4, 1), (16, 2)]), ("paper-1m", [(2, 1), (4, 1)])] {
        for (quantile, tiles) in windows(preset, draw.seed, &[0.1, 0.4, 0.6, 0.9])? {
            for heads in heads {
                let what = format!("window {preset} q{quantile}");
                list.launch(1, Family::Window, &what, Mask::Causal, heads, &tiles);
            }
        }
    }
    for _ in 0..10 {
        let heads = HEADS[draw.below(4) as usize];
        let (count, rows, step) = (2 + draw.below(30), BLOCK * (4 + draw.below(60)), 1000 + draw.below(12_000));
        list.launch(
            1,
            Family::Prefix,
            &format!("prefix {count}x{rows}+{step}"),
            Mask::Causal,
            heads,
            &prefixes(count, rows, step),
        );
    }
    for number in 0..10 {
        let heads = HEADS[draw.below(4) as usize];
        let mask = if number % 2 == 0 { Mask::Causal } else { Mask::Full };
        let tiles = mixed(&mut draw);
        list.launch(1, Family::Mixed, &format!("mixed {number}"), mask, heads, &tiles);
    }
    Ok(list.ordered(seed))
}

/// Tiles of `rows` rows, each with `step` keys more in front than the one before.
fn prefixes(count: u32, rows: u32, step: u32) -> Vec<TileShape> {
    (1..=count).map(|i| TileShape { q: rows, k: (i * step).max(rows) }).collect()
}

/// Squares of the documents of packed windows of a preset, at quantiles of their pairs.
fn windows(preset: &str, seed: u64, quantiles: &[f64]) -> Result<Vec<(f64, Vec<TileShape>)>, Failure> {
    let workload = Workload::open(preset, None, None).map_err(Failure::internal)?;
    let options = StreamOptions { gbs: 128, ..StreamOptions::default() };
    let stream = WindowStream::with_options(&workload, seed, options).map_err(Failure::internal)?;
    let mut windows: Vec<Vec<u32>> = stream.chunk(0).into_iter().flatten().map(|w| w.to_vec()).collect();
    windows.sort_by_key(|w| w.iter().map(|l| causal_pairs(*l)).sum::<u64>());
    let last = windows.len().saturating_sub(1) as f64;
    let squares = |w: &Vec<u32>| w.iter().map(|l| TileShape { q: *l, k: *l }).collect();
    Ok(quantiles.iter().filter_map(|q| Some((*q, squares(windows.get((q * last) as usize)?)))).collect())
}

/// Numbers from a seed.
struct Draw {
    seed: u64,
    next: u64,
}

impl Draw {
    fn below(&mut self, n: u32) -> u32 {
        self.next += 1;
        let hash = blake3::hash(&step_seed(self.seed, self.next).to_le_bytes());
        let bytes = hash.as_bytes();
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) % n.max(1)
    }

    /// A size between two, as likely in every octave.
    fn size(&mut self, low: u32, high: u32) -> u32 {
        let (low, high) = (f64::from(low.max(1)), f64::from(high.max(low)));
        let share = f64::from(self.below(1 << 20)) / f64::from(1 << 20);
        (low * (high / low).powf(share)) as u32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use skewbench_sim::{Pricing, Profile};

    use super::{Work, held_out, points};

    #[test]
    fn points_are_distinct_and_none_is_held_out() {
        let pricing = Pricing::new(Profile::named("h200").expect("built in"));
        let all = points(&pricing, 1).expect("points");
        let names: HashSet<&str> = all.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.windows(2).all(|pair| pair[0].level <= pair[1].level));
        assert_eq!(all, points(&pricing, 1).expect("points"));
        let shapes: HashSet<_> =
            all.iter().filter_map(|p| if let Work::Launch(_, shape) = &p.work { Some(shape) } else { None }).collect();
        let held = held_out(&pricing, 1).expect("points");
        assert!(held.len() > 100, "{}", held.len());
        for point in held {
            let Work::Launch(_, shape) = &point.work else { panic!("{point:?} is no launch") };
            assert!(!shapes.contains(shape), "{} is in the table", point.name);
        }
    }

    #[test]
    fn a_calibration_fits_eight_minutes() {
        let pricing = Pricing::new(Profile::named("h200").expect("built in"));
        let all = points(&pricing, 1).expect("points");
        let seconds = |level: u8| all.iter().filter(|p| p.level <= level).map(|p| p.seconds).sum::<f64>();
        assert!(all.len() <= 1200, "{} points, {:?} s", all.len(), [0, 1, 2, 3, 4].map(seconds));
        assert!(seconds(1) < 90.0, "{}", seconds(1));
        assert!(seconds(2) < 240.0, "{}", seconds(2));
        assert!(seconds(4) < 480.0, "{}", seconds(4));
    }
}
