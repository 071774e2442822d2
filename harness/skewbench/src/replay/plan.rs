use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use skewbench_plan::{Cost, Mask, Pass};
use skewbench_sim::Pricing;

use super::{Chosen, Shape};

/// A wave that is replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawnWave {
    /// Step.
    pub step: u32,
    /// Wave of the step.
    pub wave: u32,
    /// Ranks whose launches are timed.
    pub chosen: Vec<Chosen>,
}

/// Seconds until the graph of a kernel call is built, where its kernel is compiled already.
const BUILD_S: f64 = 0.12;
/// Seconds that a launch takes beside its calls: lengths, offsets, checks, waiting.
const SETUP_S: f64 = 0.01;
/// Bytes of operands and results that are filled or checked in a second.
const FILL_BYTES_PER_S: f64 = 1e11;
/// Bytes of an element of an operand.
const ELEMENT_BYTES: f64 = 2.0;
/// Time of a forward over that of its backward.
const FORWARD_SHARE: f64 = 0.4;
/// Rows from which a call of one tile has a graph of its own.
const OWN_GRAPH_ROWS: u32 = 1024;

/// Calls that are kept apart as warm-up and those that count, of a launch that is predicted to take so long. The timer makes
/// one call before all of them, which is enough for long ones, whose noise is small, too.
pub fn calls(price_ns: f64) -> (u32, u32) {
    match price_ns {
        ns if ns < 5e6 => (1, 3),
        ns if ns < 5e7 => (0, 2),
        _ => (0, 1),
    }
}

/// What a graph is built for: pass, mask with a word for squares alone, heads, and tiles, rows and keys that it serves.
type Graph = (Pass, Mask, bool, [u32; 5]);

fn graphs(shape: &Shape) -> impl Iterator<Item = Graph> {
    let q = shape.tiles.iter().map(|t| t.q).max().unwrap_or(0);
    let k = shape.tiles.iter().map(|t| t.k).max().unwrap_or(0);
    let serves = match shape.tiles.as_slice() {
        [_] if q >= OWN_GRAPH_ROWS => [1, q, k],
        tiles => [tiles.len() as u32, q, k].map(u32::next_power_of_two),
    };
    let squares = shape.tiles.iter().all(|t| t.q == t.k);
    let form = [shape.q_heads, shape.kv_heads, serves[0], serves[1], serves[2]];
    // A backward needs the results of its forward.
    let passes = if shape.pass == Pass::Backward { &[Pass::Forward, Pass::Backward][..] } else { &[Pass::Forward] };
    let mask = shape.mask;
    passes.iter().map(move |pass| (*pass, mask, squares, form))
}

/// Distinct launches with what timing them is predicted to take.
#[derive(Default)]
pub struct Prices {
    shapes: Vec<(Arc<Shape>, f64)>,
    number: HashMap<Arc<Shape>, usize>,
}

impl Prices {
    /// The number of a shape, priced when it comes first.
    pub fn add(&mut self, shape: Shape, pricing: &Pricing) -> usize {
        if let Some(number) = self.number.get(&shape) {
            return *number;
        }
        let price_ns = pricing.launch_ps(&shape.launch()) as f64 * 1e-3;
        let (shape, number) = (Arc::new(shape), self.shapes.len());
        self.shapes.push((shape.clone(), price_ns));
        self.number.insert(shape, number);
        number
    }

    /// A shape with its price in nanoseconds.
    pub fn get(&self, number: usize) -> (&Arc<Shape>, f64) {
        let (shape, price_ns) = &self.shapes[number];
        (shape, *price_ns)
    }

    /// Seconds of a card for these launches, each counted once.
    pub fn seconds(&self, numbers: impl IntoIterator<Item = usize>) -> Budgeted {
        let numbers: HashSet<usize> = numbers.into_iter().collect();
        let mut built: HashSet<Graph> = HashSet::new();
        let mut total = Budgeted::default();
        // In order, so that the sum is the same however the set is laid out.
        let mut sorted: Vec<usize> = numbers.into_iter().collect();
        sorted.sort_unstable();
        for number in sorted {
            let (shape, price_ns) = self.get(number);
            built.extend(graphs(shape));
            let [q, k, _] = shape.totals();
            let elements = q as f64 * f64::from(shape.q_heads) + 2.0 * k as f64 * f64::from(shape.kv_heads);
            let bytes = elements * f64::from(shape.head_dim) * ELEMENT_BYTES;
            let (warm_up, repeats) = calls(price_ns);
            let forward = if shape.pass == Pass::Backward { FORWARD_SHARE } else { 0.0 };
            let calls = f64::from(1 + warm_up + repeats) + forward;
            total.launches += 1;
            total.seconds += SETUP_S + bytes / FILL_BYTES_PER_S + calls * price_ns * 1e-9;
        }
        total.seconds += BUILD_S * built.len() as f64;
        total
    }
}

/// What timing takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Budgeted {
    /// Distinct launches.
    pub launches: usize,
    /// Seconds of the card.
    pub seconds: f64,
}
