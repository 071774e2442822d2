use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use serde_json::{Map, Value};
use skewbench_plan::{AttentionShape, Layout, PackedSequence, Step};
use skewbench_systems::{Accepts, OptionSpec};

/// A small job: steps of packed sequences, a layout, heads and options, all drawn from one seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Case {
    /// Seed that the case was drawn from; also the seed of placement and inputs.
    pub seed: u64,
    /// Document lengths of every packed sequence of every step.
    pub steps: Vec<Vec<Vec<u32>>>,
    /// Data-parallel ranks.
    pub dp: u32,
    /// Context-parallel ranks.
    pub cp: u32,
    /// Heads.
    pub shape: AttentionShape,
    /// Options of the system; those that are not here have their defaults.
    pub options: Map<String, Value>,
}

/// Tokens of a packed sequence at most, so that the dense reference stays cheap.
const WINDOW: u32 = 260;

impl Case {
    /// Draws a case: CP 1 to 9, DP 1 to 8, 1 to 4 KV heads with 1 to 4 query heads each; documents of one token, odd ones,
    /// window-long ones, hundreds of short ones; options at their defaults and at their edges. `steps` is the number of
    /// optimizer steps.
    pub fn draw(seed: u64, specs: &[OptionSpec], steps: u32) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let dp = rng.random_range(1..=8);
        let cp = rng.random_range(1..=9);
        let kv_heads = rng.random_range(1..=4u16);
        let shape = AttentionShape {
            q_heads: kv_heads * rng.random_range(1..=4u16),
            kv_heads,
            head_dim: [4, 8, 16][rng.random_range(0..3)],
        };
        let waves = rng.random_range(1..=2);
        let window = [rng.random_range(1..=24), rng.random_range(25..=WINDOW)][rng.random_range(0..2)].max(cp);
        let steps = (0..steps).map(|_| (0..dp * waves).map(|_| window_of(window, &mut rng)).collect()).collect();
        let mut options = Map::new();
        for spec in specs {
            if let Some(value) = value_of(&spec.accepts, &mut rng) {
                options.insert(spec.name.to_owned(), value);
            }
        }
        Self { seed, steps, dp, cp, shape, options }
    }

    /// The job's layout, four cards a node, so that domains span nodes.
    pub fn layout(&self) -> Layout {
        Layout { cards_per_node: 4, ..Layout::dp_cp(self.dp, self.cp) }
    }

    /// The steps as a data loader delivers them.
    pub fn loaded(&self) -> Vec<Step> {
        let window = self.steps.iter().flatten().map(|s| s.iter().sum()).max().unwrap_or(0);
        let step = |(index, sequences): (u64, &Vec<Vec<u32>>)| Step {
            index,
            window,
            sequences: sequences.iter().map(|s| PackedSequence::new(s.iter().copied())).collect(),
        };
        (0..).zip(&self.steps).map(step).collect()
    }
}

/// Documents that fill a window exactly.
fn window_of(window: u32, rng: &mut impl Rng) -> Vec<u32> {
    let longest = match rng.random_range(0..5) {
        0 => window,
        1 => 1,
        2 => 4,
        3 => window / 2 + 1,
        _ => 33,
    };
    let mut left = window;
    let mut documents = Vec::new();
    while left > 0 {
        let length = if longest == window { window } else { rng.random_range(1..=longest) }.min(left);
        documents.push(length);
        left -= length;
    }
    documents
}

/// A value that the option accepts: `None` for its default, an edge, or something between.
fn value_of(accepts: &Accepts, rng: &mut impl Rng) -> Option<Value> {
    if rng.random_bool(0.4) {
        return None;
    }
    let whole = |min: u64, max: u64, rng: &mut dyn Rng| -> Value {
        let candidates =
            [min, min.saturating_add(1), min.saturating_add(rng.random_range(0..8)), 1 << rng.random_range(0..9)];
        candidates[rng.random_range(0..4)].clamp(min, max).into()
    };
    Some(match *accepts {
        Accepts::Flag => rng.random_bool(0.5).into(),
        Accepts::Integer { min, max } | Accepts::IntegerOrAuto { min, max } => whole(min, max, rng),
        Accepts::Number { min, max } => {
            let high = max.min(min + 1.0);
            [min, high, min + (high - min) * 0.05, rng.random_range(min..=high)][rng.random_range(0..4)].into()
        }
        Accepts::Choice(words) => words.get(rng.random_range(0..words.len().max(1))).copied()?.into(),
    })
}
