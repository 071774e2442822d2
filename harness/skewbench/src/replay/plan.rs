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

/// Calls before those that count: the first of a shape may load a kernel.
pub(super) const WARM_UP: u32 = 1;
/// Seconds until the first call of a kernel's kind is ready.
const BUILD_S: f64 = 0.3;
/// Seconds that a launch takes beside its calls: lengths, offsets, waiting.
const SETUP_S: f64 = 0.01;
/// Bytes of operands that are filled in a second.
const FILL_BYTES_PER_S: f64 = 2e11;
/// Bytes of an element of an operand.
const ELEMENT_BYTES: f64 = 2.0;

/// Repeats that count, of a launch that is predicted to take so long: noise falls with length.
pub(super) fn repeats(price_ns: f64) -> u32 {
    match price_ns {
        ns if ns < 5e6 => 3,
        ns if ns < 5e7 => 2,
        _ => 1,
    }
}

/// Which kernels are built: one kind a pass, mask and head count.
type Kernel = (Pass, Mask, u32, u32);

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
        let mut kernels: HashSet<Kernel> = HashSet::new();
        let mut total = Budgeted::default();
        // In order, so that the sum is the same however the set is laid out.
        let mut sorted: Vec<usize> = numbers.into_iter().collect();
        sorted.sort_unstable();
        for number in sorted {
            let (shape, price_ns) = self.get(number);
            kernels.insert((shape.pass, shape.mask, shape.q_heads, shape.kv_heads));
            let [q, k, _] = shape.totals();
            let elements = q as f64 * f64::from(shape.q_heads) + 2.0 * k as f64 * f64::from(shape.kv_heads);
            let bytes = elements * f64::from(shape.head_dim) * ELEMENT_BYTES;
            let calls = f64::from(WARM_UP + repeats(price_ns));
            total.launches += 1;
            total.seconds += SETUP_S + bytes / FILL_BYTES_PER_S + calls * price_ns * 1e-9;
        }
        total.seconds += BUILD_S * kernels.len() as f64;
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
