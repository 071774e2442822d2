use std::sync::LazyLock;

use serde::Deserialize;

use crate::error::WorkloadError;
use crate::packing::Packing;
use crate::real;
use crate::source::{Bin, LengthSource, Lognormal, Within};

/// Where a preset's numbers come from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// System or paper whose lengths these are.
    pub system: String,
    /// Repository, or the paper.
    pub repository: String,
    /// Commit of the repository, `-` where there is none.
    pub commit: String,
    /// Licence of the source.
    pub licence: String,
    /// File inside the repository and what was done with it.
    pub note: String,
}

/// A named distribution of document lengths. Its documents are the same at every window.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Name on the command line and in experiments.
    pub name: String,
    /// One line about the documents.
    pub description: String,
    /// Default window in tokens.
    pub window: u32,
    /// Default packing.
    pub packing: Packing,
    /// Where the numbers come from.
    pub source: Provenance,
    lengths: LengthsTable,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum LengthsTable {
    TwoLognormals {
        body: Lognormal,
        long: Lognormal,
        long_token_share: f64,
        fit_window: u64,
        min: u64,
    },
    Histogram {
        within: Within,
        weight: WeightOf,
        #[serde(default = "one")]
        unit: u64,
        #[serde(default)]
        inclusive: bool,
        bins: Vec<(f64, f64, f64)>,
    },
    RealMix {
        long_token_share: f64,
        long_below: u64,
        fit_window: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WeightOf {
    Documents,
    Tokens,
}

fn one() -> u64 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PresetFile {
    preset: Vec<Preset>,
}

static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    // Built-in text, read by the tests: it cannot fail on a user's machine only.
    toml::from_str::<PresetFile>(include_str!("../data/presets.toml")).expect("data/presets.toml parses").preset
});

/// All presets, in the order of the data file.
pub fn presets() -> &'static [Preset] {
    &PRESETS
}

/// The preset of this name; what changes its lengths, after a colon, is left aside.
///
/// # Errors
/// No preset has it; the message offers the nearest.
pub fn preset(name: &str) -> Result<&'static Preset, WorkloadError> {
    let name = split(name).0;
    presets()
        .iter()
        .find(|p| p.name == name)
        .ok_or_else(|| WorkloadError::UnknownPreset { name: name.to_owned(), hint: nearest(name) })
}

/// Name of a preset and the changes of its lengths: `paper-256k:long_token_share=0.2,long_mu=11.8`.
fn split(name: &str) -> (&str, Option<&str>) {
    name.split_once(':').map_or((name, None), |(name, changes)| (name, Some(changes)))
}

fn nearest(name: &str) -> String {
    let all = || presets().iter().map(|p| p.name.as_str());
    let name = name.to_lowercase();
    let best = all().max_by(|a, b| strsim::jaro_winkler(&name, a).total_cmp(&strsim::jaro_winkler(&name, b)));
    match best.filter(|best| strsim::jaro_winkler(&name, best) >= 0.7) {
        Some(best) => format!("did you mean {best:?}? (a file is given by its path, as in ./{name}.parquet)"),
        None => format!("choose one of {}, or give a file by its path", all().collect::<Vec<_>>().join(", ")),
    }
}

impl Preset {
    /// The preset's document lengths with the changes that a name asks for after its colon: of two lognormals
    /// `long_token_share`, `long_mu`, `long_sigma`, `body_mu` and `body_sigma`.
    ///
    /// # Errors
    /// The preset is no pair of lognormals, a key is unknown, or a value is none that the distribution can have.
    pub(crate) fn lengths_of(&self, name: &str) -> Result<LengthSource, WorkloadError> {
        let Some(changes) = split(name).1 else { return self.lengths() };
        let LengthsTable::TwoLognormals { mut body, mut long, mut long_token_share, fit_window, min } = self.lengths
        else {
            let what =
                format!("{name}: only presets of two lognormals have parameters; leave out what follows the colon");
            return Err(WorkloadError::Source(what));
        };
        for change in changes.split(',') {
            let known = "long_token_share, long_mu, long_sigma, body_mu, body_sigma";
            let wrong = || WorkloadError::Source(format!("{name}: {change:?}; write key=number with keys {known}"));
            let (key, value) = change.split_once('=').ok_or_else(wrong)?;
            let slot = match key.trim() {
                "long_token_share" => &mut long_token_share,
                "long_mu" => &mut long.mu,
                "long_sigma" => &mut long.sigma,
                "body_mu" => &mut body.mu,
                "body_sigma" => &mut body.sigma,
                _ => return Err(wrong()),
            };
            *slot = value.trim().parse().map_err(|_| wrong())?;
        }
        LengthSource::two_lognormals(body, long, long_token_share, fit_window, min)
    }

    /// The preset's document lengths.
    ///
    /// # Errors
    /// The built-in data is damaged.
    pub fn lengths(&self) -> Result<LengthSource, WorkloadError> {
        match &self.lengths {
            LengthsTable::TwoLognormals { body, long, long_token_share, fit_window, min } => {
                LengthSource::two_lognormals(*body, *long, *long_token_share, *fit_window, *min)
            }
            LengthsTable::Histogram { within, weight, unit, inclusive, bins } => {
                let edge = |x: f64| (x * *unit as f64) as u64;
                let bins = bins.iter().map(|&(lower, upper, weight_of_bin)| {
                    let (lower, upper) = (edge(lower).max(1), edge(upper) + u64::from(*inclusive));
                    let documents = match weight {
                        WeightOf::Documents => weight_of_bin,
                        WeightOf::Tokens => weight_of_bin / mean_log_uniform(lower as f64, upper as f64),
                    };
                    Bin { lower, upper, documents }
                });
                LengthSource::histogram(bins.collect(), *within)
            }
            LengthsTable::RealMix { long_token_share, long_below, fit_window } => {
                real::mix(*long_token_share, *fit_window, *long_below)
            }
        }
    }
}

fn mean_log_uniform(lower: f64, upper: f64) -> f64 {
    (upper - lower) / libm::log(upper / lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_lengths_and_a_source() {
        let names: Vec<&str> = presets().iter().map(|p| p.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "paper-256k",
                "paper-1m",
                "real-256k",
                "real-1m",
                "magi",
                "magi-long",
                "magi-short",
                "prolong",
                "wlb-lengths",
                "wikipedia",
                "longmino"
            ]
        );
        for preset in presets() {
            assert!(preset.lengths().unwrap().mean_tokens(1 << 20) > 1.0);
            let source = &preset.source;
            for text in [&source.system, &source.repository, &source.commit, &source.licence, &source.note] {
                assert!(!text.is_empty(), "{}", preset.name);
            }
        }
    }

    #[test]
    fn names_change_the_lengths_of_lognormals() {
        let of = |name: &str| preset(name).and_then(|p| p.lengths_of(name));
        let mean = |name: &str| of(name).unwrap().mean_tokens(1 << 18);
        assert!(mean("paper-256k:long_token_share=0.6") > mean("paper-256k"));
        assert!(mean("paper-256k:long_token_share=0.1, long_mu=11") < mean("paper-256k"));
        for wrong in ["paper-256k:share=1", "paper-256k:long_mu", "magi:long_mu=3", "paper-256k:long_token_share=2"] {
            assert!(matches!(of(wrong), Err(WorkloadError::Source(_))), "{wrong}");
        }
    }

    #[test]
    fn histograms_have_the_published_means() {
        // Published means of the lists; log-uniform bins get within a few percent of them.
        for (name, published) in [("prolong", 3051.9), ("wlb-lengths", 3961.8), ("wikipedia", 1013.65)] {
            let mean = preset(name).unwrap().lengths().unwrap().mean_tokens(1 << 30);
            assert!((mean / published - 1.0).abs() < 0.06, "{name}: {mean} against {published}");
        }
    }

    #[test]
    fn unknown_names_get_the_nearest() {
        let message = |name| preset(name).unwrap_err().to_string();
        assert!(message("paper-1M").contains("did you mean \"paper-1m\"?"));
        assert!(message("wikpedia").contains("did you mean \"wikipedia\"?"));
        assert!(message("zzz").contains("choose one of paper-256k"));
    }
}
