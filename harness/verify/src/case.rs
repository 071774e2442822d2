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
/// Tokens of the sequence of one-token documents that some cases have; attention over them is cheap.
const SHATTERED: std::ops::Range<u32> = 2900..3100;
/// One case in so many has one.
const SHATTERED_EVERY: u32 = 12;
/// Greatest value of an option that is drawn where its range ends there; ranges that go on serve to be open-ended, and
/// their ends are drawn only where they are beyond any job, so that they mean all of it.
const GREATEST: u64 = 4096;
/// Greatest end of the range of an option that is a number.
const GREATEST_NUMBER: f64 = 100.0;

impl Case {
    /// Draws a case: CP 1 to 9, DP 1 to 8, 1 to 4 KV heads with 1 to 4 query heads each; documents of one token, odd ones,
    /// window-long ones, hundreds of short ones, sequences shorter than CP and, rarely, one of some 3,000 one-token documents;
    /// options at their defaults and at their edges. `steps` is the number of optimizer steps.
    pub fn draw(seed: u64, specs: &[OptionSpec], steps: u32) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let shattered = rng.random_ratio(1, SHATTERED_EVERY);
        let dp = rng.random_range(1..=if shattered { 2 } else { 8 });
        let cp = rng.random_range(1..=9);
        let kv_heads = rng.random_range(1..=4u16);
        let shape = AttentionShape {
            q_heads: kv_heads * rng.random_range(1..=4u16),
            kv_heads,
            head_dim: if shattered { 4 } else { [4, 8, 16][rng.random_range(0..3)] },
        };
        let waves = rng.random_range(1..=2);
        let window = [rng.random_range(1..=24), rng.random_range(25..=WINDOW)][rng.random_range(0..2)];
        let mut steps: Vec<Vec<Vec<u32>>> =
            (0..steps).map(|_| (0..dp * waves).map(|_| window_of(window, &mut rng)).collect()).collect();
        if let Some(first) = steps.first_mut().and_then(|step| step.first_mut()).filter(|_| shattered) {
            *first = vec![1; rng.random_range(SHATTERED) as usize];
        }
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
        let power = 1 << rng.random_range(0..9);
        let candidates = [min, min.saturating_add(1), min.saturating_add(rng.random_range(0..8)), power, max];
        let known = if max <= GREATEST || max >= 1 << 31 { 5 } else { 4 };
        candidates[rng.random_range(0..known)].clamp(min, max).into()
    };
    Some(match *accepts {
        Accepts::Flag => rng.random_bool(0.5).into(),
        Accepts::Integer { min, max } | Accepts::IntegerOrAuto { min, max } => whole(min, max, rng),
        Accepts::Number { min, max } => {
            let high = max.min(min + 1.0);
            let candidates = [min, high, min + (high - min) * 0.05, rng.random_range(min..=high), max];
            let known = if max <= GREATEST_NUMBER { 5 } else { 4 };
            candidates[rng.random_range(0..known)].into()
        }
        Accepts::Choice(words) => words.get(rng.random_range(0..words.len().max(1))).copied()?.into(),
    })
}

#[cfg(test)]
mod tests {
    use skewbench_systems::DefaultValue;

    use super::*;

    #[test]
    fn hard_shapes_occur() {
        let cases: Vec<Case> = (0..400).map(|seed| Case::draw(seed, &[], 1)).collect();
        let sequences = |case: &Case| case.steps.concat();
        let short = |case: &&Case| sequences(case).iter().any(|s| s.iter().sum::<u32>() < case.cp);
        assert!(cases.iter().filter(short).count() > 8);
        let shattered: Vec<&Case> = cases.iter().filter(|c| sequences(c).iter().any(|s| s.len() > 2000)).collect();
        assert!((15..60).contains(&shattered.len()), "{}", shattered.len());
        assert!(shattered.iter().all(|case| case.dp <= 2 && case.shape.head_dim == 4));
    }

    #[test]
    fn options_reach_both_ends_of_their_ranges() {
        let spec =
            |name, accepts| OptionSpec { name, alias: None, default: DefaultValue::Flag(false), accepts, summary: "" };
        let specs = [
            spec("heads", Accepts::Integer { min: 1, max: 1024 }),
            spec("block", Accepts::IntegerOrAuto { min: 1, max: 1 << 31 }),
            spec("pool", Accepts::Integer { min: 1, max: 1 << 20 }),
            spec("tau", Accepts::Number { min: 0.0, max: 10.0 }),
        ];
        let drawn = |name: &str| -> Vec<f64> {
            let cases = (0..300).map(|seed| Case::draw(seed, &specs, 1));
            cases.filter_map(|case| case.options.get(name).and_then(Value::as_f64)).collect()
        };
        for (name, min, max) in [("heads", 1.0, 1024.0), ("block", 1.0, f64::from(1u32 << 31)), ("tau", 0.0, 10.0)] {
            let values = drawn(name);
            assert!(values.contains(&min) && values.contains(&max), "{name}");
        }
        assert!(drawn("pool").iter().all(|pool| *pool <= 256.0));
    }
}
