use super::{
    octaves::{FIRST_OCTAVE, Log2Table, NODES},
    throughput::{BLOCK, Kernel, Observation, Throughput},
};

/// Heads that have a slice of their own; more heads cost in proportion.
pub(crate) const MAX_HEADS: u32 = 128;
/// Powers of two up to [`MAX_HEADS`].
const HEAD_NODES: usize = 8;
const SLICE: usize = NODES * NODES;

/// Value of a piecewise linear function of rising `points`, constant beyond both ends; `None` without points.
pub(crate) fn interpolate<T>(points: &[(f64, T)], x: f64, value: impl Fn(&T) -> f64) -> Option<f64> {
    let after = points.partition_point(|(at, _)| *at <= x);
    let Some((right, right_value)) = points.get(after) else { return points.last().map(|(_, v)| value(v)) };
    let Some((left, left_value)) = after.checked_sub(1).and_then(|i| points.get(i)) else {
        return Some(value(right_value));
    };
    let (low, high) = (value(left_value), value(right_value));
    Some(low + (high - low) * ((x - left) / (right - left)))
}

type Line = Vec<(f64, f64)>;

/// Log2 of measured over lawful time at the measured sizes, by log2 of heads, rows, keys.
struct Corrections(Vec<(f64, Vec<(f64, Line)>)>);

impl Corrections {
    fn new(rows: &[Observation], law: impl Fn(u32, u32, u32) -> f64) -> Self {
        let log = |n: u32| libm::log2(f64::from(n));
        let mut sorted: Vec<&Observation> = rows.iter().collect();
        sorted.sort_by_key(|row| (row.heads, row.q, row.k));
        let mut tree: Vec<(f64, Vec<(f64, Line)>)> = Vec::new();
        for same in sorted.chunk_by(|a, b| (a.heads, a.q, a.k) == (b.heads, b.q, b.k)) {
            let Observation { heads, q, k, .. } = *same[0];
            let mean = same.iter().map(|row| libm::log2(row.ns)).sum::<f64>() / same.len() as f64;
            let correction = mean - libm::log2(law(heads, q, k));
            if tree.last().is_none_or(|(at, _)| *at != log(heads)) {
                tree.push((log(heads), Vec::new()));
            }
            if let Some((_, by_rows)) = tree.last_mut() {
                if by_rows.last().is_none_or(|(at, _)| *at != log(q)) {
                    by_rows.push((log(q), Vec::new()));
                }
                if let Some((_, line)) = by_rows.last_mut() {
                    line.push((log(k), correction));
                }
            }
        }
        Self(tree)
    }

    fn at(&self, heads: f64, q: f64, k: f64) -> f64 {
        let line = |line: &Line| interpolate(line, k, |v| *v).unwrap_or(0.0);
        let plane = |rows: &Vec<(f64, Line)>| interpolate(rows, q, line).unwrap_or(0.0);
        interpolate(&self.0, heads, plane).unwrap_or(0.0)
    }
}

/// Log2 nanoseconds of calls of one tile, one slice of (rows, keys) for every head count.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    slices: Vec<f64>,
}

/// Time of the longest block on a multiprocessor that shares the card with few others, nanoseconds per key (forward) or row (backward).
pub(crate) fn block_ns(backward: bool, sms: u32, overhead_ns: f64, rows: &[Observation]) -> Option<f64> {
    let sparse = |row: &&Observation| {
        let blocks = u64::from(if backward { row.k } else { row.q }.div_ceil(BLOCK)) * u64::from(row.heads);
        blocks * 2 <= u64::from(sms) && row.k >= 8 * BLOCK && row.q >= 4 * BLOCK
    };
    let length = |row: &Observation| f64::from(if backward { row.q } else { row.k });
    let mut rates: Vec<f64> = rows.iter().filter(sparse).map(|row| (row.ns - overhead_ns) / length(row)).collect();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied()
}

impl Nodes {
    /// Nodes of one kernel and pass. `block_ns`: see [`block_ns`]; without one a block runs at its share of the full card's rate.
    pub(crate) fn new(
        kernel: Kernel,
        backward: bool,
        overhead_ns: f64,
        block_ns: Option<f64>,
        card: &Throughput,
        rows: &[Observation],
    ) -> Self {
        let law = |heads: u32, q: u32, k: u32| {
            let longest = block_ns.unwrap_or(0.0) * f64::from(if backward { q } else { k }.max(BLOCK));
            overhead_ns + longest.max(card.card_ns(q, k) * f64::from(heads))
        };
        let corrections = Corrections::new(rows, law);
        let mut nodes = vec![0.0; HEAD_NODES * SLICE];
        for (index, node) in nodes.iter_mut().enumerate() {
            let (h, q, k) = (index / SLICE, index / NODES % NODES, index % NODES);
            let q = if kernel == Kernel::Rectangle { q } else { q.min(k) };
            let (heads, q, k) = (h as u32, q as u32 + FIRST_OCTAVE, k as u32 + FIRST_OCTAVE);
            let q = if kernel == Kernel::Square { k } else { q };
            *node = libm::log2(law(1 << heads, 1 << q, 1 << k))
                + corrections.at(f64::from(heads), f64::from(q), f64::from(k));
        }
        make_monotone(&mut nodes);
        let mut slices = Vec::with_capacity(MAX_HEADS as usize * SLICE);
        for heads in 1..=MAX_HEADS {
            let log = libm::log2(f64::from(heads));
            let low = (log as usize).min(HEAD_NODES - 2);
            let share = log - low as f64;
            slices.extend((0..SLICE).map(|i| {
                let (a, b) = (nodes[low * SLICE + i], nodes[(low + 1) * SLICE + i]);
                a + (b - a) * share
            }));
        }
        Self { slices }
    }

    /// Log2 nanoseconds of a tile alone in a call; `heads` from 1 to [`MAX_HEADS`].
    #[inline]
    pub(crate) fn log2_ns(&self, logs: &Log2Table, heads: u32, q: u32, k: u32) -> f64 {
        let slice = &self.slices[(heads.clamp(1, MAX_HEADS) - 1) as usize * SLICE..][..SLICE];
        let ((qi, qf), (ki, kf)) = (logs.place(q), logs.place(k));
        let at = qi * NODES + ki;
        let low = slice[at] + (slice[at + 1] - slice[at]) * kf;
        let high = slice[at + NODES] + (slice[at + NODES + 1] - slice[at + NODES]) * kf;
        low + (high - low) * qf
    }
}

/// Replaces every node by the mean of the largest node below it and the smallest above it (in rows, keys and heads): monotone, and the
/// node itself where the nodes already were.
fn make_monotone(nodes: &mut [f64]) {
    let mut below = nodes.to_vec();
    let mut above = nodes.to_vec();
    for (stride, extent) in [(1, NODES), (NODES, NODES), (SLICE, HEAD_NODES)] {
        for i in 0..nodes.len() {
            if i / stride % extent > 0 {
                below[i] = below[i].max(below[i - stride]);
            }
        }
        for i in (0..nodes.len()).rev() {
            if i / stride % extent + 1 < extent {
                above[i] = above[i].min(above[i + stride]);
            }
        }
    }
    for ((node, low), high) in nodes.iter_mut().zip(below).zip(above) {
        *node = 0.5 * (low + high);
    }
}
