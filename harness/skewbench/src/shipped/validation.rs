use serde::{Deserialize, Serialize};
use skewbench_plan::Pass;
use skewbench_store::stats::{median, quantile};

use super::{Card, Shipped};
use crate::failure::Failure;

const ABOUT: &str = "about.toml";
const LAUNCHES: &str = "launches.csv";
const WAVES: &str = "waves.csv";
const RANKS: &str = "ranks.csv";

/// Relative error up to which a launch is well predicted where repeats differ by less.
const WELL: f64 = 0.04;

/// What a profile predicts beside what a card took, on shapes that are not in the profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Validation {
    /// Name of the profile.
    pub profile: String,
    /// The card.
    pub card: Card,
    /// Which shapes were kept out of the profile, and how they were chosen.
    pub held_out: String,
    /// Kernel calls.
    pub launches: Vec<Launch>,
    /// Waves: their slowest ranks.
    pub waves: Vec<Placed>,
    /// Ranks of waves.
    pub ranks: Vec<Placed>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    held_out: String,
    card: Card,
}

/// A prediction and what was measured, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// The simulator's.
    pub predicted: f64,
    /// Median of the repeats.
    pub median: f64,
    /// Least of them.
    pub min: f64,
    /// Greatest of them.
    pub max: f64,
    /// Repeats.
    pub n: u32,
}

impl Compared {
    /// Predicted over measured.
    pub fn ratio(&self) -> f64 {
        self.predicted / self.median
    }

    /// Predicted over measured, less 1.
    pub fn error(&self) -> f64 {
        self.ratio() - 1.0
    }

    /// How far the repeats reach from their median, relative to it.
    pub fn spread(&self) -> f64 {
        (self.max / self.median - 1.0).max(1.0 - self.min / self.median)
    }

    fn problem(&self) -> Option<String> {
        let all = [self.predicted, self.min, self.median, self.max];
        if all.iter().any(|x| !(x.is_finite() && *x > 0.0)) {
            return Some("times must be above 0".into());
        }
        if !(self.min <= self.median && self.median <= self.max) {
            return Some("the median is not between the least and the greatest time".into());
        }
        (self.n == 0).then(|| "n is 0".into())
    }
}

/// A kernel call: a row of `launches.csv`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// What kind of shape it is, or the run it comes from.
    pub source: String,
    /// Pass.
    pub pass: Pass,
    /// Mask of its tiles.
    pub mask: String,
    /// Query heads.
    pub q_heads: u32,
    /// KV heads.
    pub kv_heads: u32,
    /// Tiles.
    pub tiles: u32,
    /// Rows of all tiles.
    pub q_total: u64,
    /// Keys of all tiles.
    pub k_total: u64,
    /// Keys of the longest tile.
    pub k_max: u64,
    /// Unmasked pairs of one head.
    pub pairs: u64,
    predicted_ns: f64,
    measured_ns_median: f64,
    measured_ns_min: f64,
    measured_ns_max: f64,
    n: u32,
}

/// A wave, its slowest rank: a row of `waves.csv`; with a rank one of `ranks.csv`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Placed {
    /// The run it comes from: `replay`, `cuda`.
    pub source: String,
    /// System.
    pub system: String,
    /// Workload.
    pub workload: String,
    /// Layout, as on the command line.
    pub layout: String,
    /// Pass.
    pub pass: Pass,
    /// Wave.
    pub wave: u32,
    /// Rank; none for the slowest of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Predicted, nanoseconds.
    pub predicted_ns: f64,
    /// Median of the repeats, nanoseconds.
    pub measured_ns_median: f64,
    /// Least of them.
    pub measured_ns_min: f64,
    /// Greatest of them.
    pub measured_ns_max: f64,
    /// Repeats.
    pub n: u32,
}

macro_rules! with_times {
    ($($row:ident),*) => {$(
        impl $row {
            /// Predicted and measured.
            pub fn time(&self) -> Compared {
                Compared {
                    predicted: self.predicted_ns,
                    median: self.measured_ns_median,
                    min: self.measured_ns_min,
                    max: self.measured_ns_max,
                    n: self.n,
                }
            }
        }
    )*};
}

with_times!(Launch, Placed);

impl Placed {
    fn problem(&self, of_rank: bool) -> Option<String> {
        let other = (self.rank.is_some() != of_rank)
            .then(|| if of_rank { "the rank is missing" } else { "a wave has no column rank" }.to_owned());
        other.or_else(|| self.time().problem())
    }
}

impl Launch {
    fn problem(&self) -> Option<String> {
        let counts = [u64::from(self.q_heads), u64::from(self.kv_heads), u64::from(self.tiles), self.pairs];
        let empty = counts.contains(&0).then(|| "heads, tiles and pairs must be above 0".to_owned());
        empty.or_else(|| self.time().problem())
    }

    /// The shape in words.
    pub fn name(&self) -> String {
        format!(
            "{} {} {}, {}:{} heads, {} tiles, {} rows, {} keys, longest {}",
            self.source,
            pass_name(self.pass),
            self.mask,
            self.q_heads,
            self.kv_heads,
            self.tiles,
            self.q_total,
            self.k_total,
            self.k_max
        )
    }
}

/// Name of a pass.
pub fn pass_name(pass: Pass) -> &'static str {
    match pass {
        Pass::Forward => "forward",
        Pass::Backward => "backward",
    }
}

/// How good predictions are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accuracy {
    /// Comparisons.
    pub n: usize,
    /// Median of |predicted / measured - 1|.
    pub median: f64,
    /// 95th percentile of it.
    pub p95: f64,
    /// Share that is within the larger of 4% and the spread of its repeats.
    pub within: f64,
    /// Median of predicted / measured - 1: above 0 where predictions are too long.
    pub signed: f64,
}

impl Accuracy {
    /// Of some comparisons; none where there are none.
    pub fn of(compared: &[Compared]) -> Option<Self> {
        let signed: Vec<f64> = compared.iter().map(Compared::error).collect();
        let errors: Vec<f64> = signed.iter().map(|e| e.abs()).collect();
        let within = compared.iter().filter(|c| c.error().abs() <= c.spread().max(WELL)).count();
        (!compared.is_empty()).then(|| Self {
            n: compared.len(),
            median: median(&errors),
            p95: quantile(&errors, 0.95),
            within: within as f64 / compared.len() as f64,
            signed: median(&signed),
        })
    }
}

impl Validation {
    /// Reads the files of a profile.
    ///
    /// # Errors
    /// File, line and what is wrong with it.
    pub fn parse(files: &Shipped) -> Result<Self, Failure> {
        files.only(&[ABOUT, LAUNCHES, WAVES, RANKS])?;
        let About { held_out, card } = files.toml(ABOUT)?;
        let validation = Self {
            profile: files.name(),
            card,
            held_out,
            launches: files.rows(LAUNCHES, Launch::problem)?,
            waves: files.rows(WAVES, |wave: &Placed| wave.problem(false))?,
            ranks: files.rows(RANKS, |rank: &Placed| rank.problem(true))?,
        };
        if validation.launches.is_empty() && validation.waves.is_empty() && validation.ranks.is_empty() {
            return Err(files.error(ABOUT, format!("stands alone; add {LAUNCHES}, {WAVES} or {RANKS}")));
        }
        Ok(validation)
    }
}

#[cfg(test)]
mod tests {
    use super::{Accuracy, Compared, Placed, Shipped, Validation};

    fn compared(predicted: f64, median: f64, spread: f64) -> Compared {
        Compared { predicted, median, min: median * (1.0 - spread), max: median * (1.0 + spread / 2.0), n: 3 }
    }

    #[test]
    fn errors_are_relative_to_what_was_measured() {
        let all = [compared(110.0, 100.0, 0.01), compared(98.0, 100.0, 0.01), compared(90.0, 100.0, 0.2)];
        let accuracy = Accuracy::of(&all).unwrap();
        assert_eq!(accuracy.n, 3);
        assert!((accuracy.median - 0.10).abs() < 1e-12);
        assert!((accuracy.p95 - 0.10).abs() < 1e-12);
        // The first is beyond 4% and its repeats agree; the last is within the spread of its own.
        assert!((accuracy.within - 2.0 / 3.0).abs() < 1e-12);
        assert!((accuracy.signed + 0.02).abs() < 1e-12);
        assert_eq!(Accuracy::of(&[]), None);
    }

    #[test]
    fn ranks_have_a_rank_and_waves_have_none() {
        let row = |rank: &str| Placed {
            source: "cuda".into(),
            system: "libra".into(),
            workload: "w".into(),
            layout: "dp=1,cp=2".into(),
            pass: skewbench_plan::Pass::Backward,
            wave: 3,
            rank: rank.parse().ok(),
            predicted_ns: 2.0,
            measured_ns_median: 2.0,
            measured_ns_min: 1.0,
            measured_ns_max: 3.0,
            n: 3,
        };
        let csv = |rank: &str| {
            let mut file = csv::Writer::from_writer(Vec::new());
            file.serialize(row(rank)).expect("a row");
            String::from_utf8(file.into_inner().expect("bytes")).expect("text")
        };
        let about = "held_out = \"h\"\n[card]\ncard = \"c\"\ncards = 1\ndriver = \"1\"\ncuda = \"1\"\ncudnn = \"1\"\n\
                     date = \"2026-11-30\"\nrevision = \"r\"\ncommands = []\n";
        let parse = |waves: String, ranks: String| {
            let files = [("about.toml", about.to_owned()), ("waves.csv", waves), ("ranks.csv", ranks)];
            let files = files.into_iter().map(|(name, text)| (name.to_owned(), text)).collect();
            Validation::parse(&Shipped { folder: "p".into(), files })
        };
        let read = parse(csv("none"), csv("1")).expect("reads back");
        assert_eq!((&read.waves[0], &read.ranks[0]), (&row("none"), &row("1")));
        assert!(parse(csv("1"), csv("1")).expect_err("a wave").message.contains("no column rank"));
        assert!(parse(csv("none"), csv("none")).expect_err("a rank").message.contains("rank is missing"));
    }
}
