use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};
use skewbench_plan::Pass;

use super::{Card, LayerProduct, Shipped, StateRow};
use crate::failure::Failure;
use crate::present::write_text;

const ABOUT: &str = "published.toml";
const CUDA: &str = "cuda.csv";
const PEERS: &str = "peers.csv";
const FAILURES: &str = "failures.csv";
const LAYER: &str = "layer.csv";
const STATES: &str = "states.csv";
/// What stands beside the samples for readers: the study and what verification found.
const BESIDE: [&str; 2] = ["study.toml", "verified.csv"];

/// A published run on cards.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// Name of its folder, `<card>-<date>`.
    pub name: String,
    /// What it is, in a line.
    pub title: String,
    /// What it was measured on.
    pub card: Card,
    /// What a reader has to know.
    pub notes: Vec<String>,
    /// Run folders beside the samples, each with its own report.
    pub runs: Vec<RunFolder>,
    /// Samples of our programs.
    pub samples: Vec<Sample>,
    /// Samples of the peers.
    pub peers: Vec<PeerSample>,
    /// Samples of a layer's token-wise work.
    pub layer: Vec<LayerProduct>,
    /// What the cards did meanwhile.
    pub states: Vec<StateRow>,
    /// What gave no samples.
    pub failures: Vec<Failed>,
}

/// A run folder that ships with a published run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RunFolder {
    /// Path below the folder of the published run.
    pub folder: String,
    /// What it holds.
    pub about: String,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct About {
    title: String,
    #[serde(default)]
    notes: Vec<String>,
    card: Card,
    #[serde(default)]
    run: Vec<RunFolder>,
}

/// Writes what a published run is into its folder.
///
/// # Errors
/// A file that cannot be written.
pub fn write_about(folder: &Path, title: &str, notes: &[String], card: &Card) -> Result<(), Failure> {
    let about = About { title: title.to_owned(), notes: notes.to_vec(), card: card.clone(), run: Vec::new() };
    let text = toml::to_string_pretty(&about).map_err(Failure::internal)?;
    write_text(&text, &folder.join(ABOUT))
}

/// What of a program was issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// All of it.
    All,
    /// All but the transfers.
    ComputeOnly,
    /// The transfers alone.
    TransfersOnly,
    /// The attention calls that it makes, one after another, and nothing else.
    Bare,
}

/// One pass of one wave on one rank: a row of `cuda.csv`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// System.
    pub system: String,
    /// What is computed: name of a case of the study.
    pub case: String,
    /// Tokens of the wave, all sequences together.
    pub tokens: u64,
    /// Unmasked pairs of the wave, of one head.
    pub pairs: u64,
    /// Query heads.
    pub q_heads: u32,
    /// KV heads.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Layout, as on the command line: `dp=1,cp=2`.
    pub layout: String,
    /// Pieces of heads that the plan overlaps; 1 where it overlaps none.
    pub pieces: u32,
    /// `nccl`, `copy_engines`, or `none` where nothing is sent.
    pub transport: String,
    /// Pass.
    pub pass: Pass,
    /// What was issued.
    pub mode: Mode,
    /// Wave.
    pub wave: u32,
    /// Rank.
    pub rank: u32,
    /// Repetition, in the order of time; the same number of different systems was measured side by side.
    pub sample: u32,
    /// Not counted.
    pub warm_up: bool,
    /// Device time, nanoseconds.
    pub ns: u64,
}

impl Sample {
    fn problem(&self) -> Option<String> {
        let counts =
            [self.tokens, self.pairs, self.q_heads.into(), self.kv_heads.into(), self.head_dim.into(), self.ns];
        if counts.contains(&0) || self.pieces == 0 {
            return Some("tokens, pairs, heads, head_dim, pieces and ns must be above 0".into());
        }
        match ranks_of(&self.layout) {
            None => Some(format!("layout is {:?}, not like dp=1,cp=2", self.layout)),
            Some(ranks) if self.rank >= ranks => Some(format!("rank {} of {ranks}", self.rank)),
            Some(_) => None,
        }
    }
}

/// Ranks of a layout in text.
pub(super) fn ranks_of(layout: &str) -> Option<u32> {
    layout.split(',').try_fold(1_u32, |ranks, part| {
        let (name, degree) = part.split_once('=')?;
        let known = ["dp", "cp", "tp", "pp"].contains(&name.trim());
        known.then_some(())?;
        ranks.checked_mul(degree.trim().parse().ok().filter(|d| *d > 0)?)
    })
}

/// One pass of a peer on one rank: a row of `peers.csv`, as `scripts/peers/run_all.py` writes it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerSample {
    /// The peer; `kernel-alone` for attention without an exchange, `gemm` for a square bf16 product.
    pub peer: String,
    /// `forward`, `backward`; `product` for `gemm`.
    pub pass: String,
    /// Tokens of the document; rows of the product.
    pub tokens: u64,
    /// Query heads of all ranks; 0 for products.
    pub heads: u32,
    /// KV heads of all ranks; 0 for products.
    pub kv_heads: u32,
    /// Ranks that share the document.
    pub ranks: u32,
    /// Rank.
    pub rank: u32,
    /// Repetition.
    pub sample: u32,
    /// Device time, nanoseconds.
    pub ns: u64,
    /// Version of PyTorch.
    pub torch: String,
    /// Version of cuDNN, as PyTorch gives it.
    pub cudnn: String,
    /// Version of NCCL.
    pub nccl: String,
    /// The card.
    pub card: String,
}

impl PeerSample {
    fn problem(&self) -> Option<String> {
        if self.tokens == 0 || self.ranks == 0 || self.ns == 0 {
            return Some("tokens, ranks and ns must be above 0".into());
        }
        let attention = ["forward", "backward"].contains(&self.pass.as_str()) && self.heads > 0 && self.kv_heads > 0;
        let product = self.pass == "product" && self.heads == 0 && self.kv_heads == 0;
        (!attention && !product).then(|| {
            format!(
                "pass {:?} with {}:{} heads is neither attention nor a product",
                self.pass, self.heads, self.kv_heads
            )
        })
    }
}

/// What gave no samples: a row of `failures.csv`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Failed {
    /// System or peer.
    pub system: String,
    /// As [`Sample::case`].
    pub case: String,
    /// Layout.
    pub layout: String,
    /// Transport.
    pub transport: String,
    /// Why.
    pub reason: String,
}

impl Published {
    /// Reads the files of a run.
    ///
    /// # Errors
    /// File, line and what is wrong with it; samples that lack a rank.
    pub fn parse(files: &Shipped) -> Result<Self, Failure> {
        files.only(&[&[ABOUT, CUDA, PEERS, FAILURES, LAYER, STATES], &BESIDE[..]].concat())?;
        let About { title, notes, card, run } = files.toml(ABOUT)?;
        let published = Self {
            name: files.name(),
            title,
            card,
            notes,
            runs: run,
            samples: files.rows(CUDA, Sample::problem)?,
            peers: files.rows(PEERS, PeerSample::problem)?,
            layer: files.rows(LAYER, LayerProduct::problem)?,
            states: files.rows(STATES, |_: &StateRow| None)?,
            failures: files.rows(FAILURES, |_: &Failed| None)?,
        };
        published.whole().map_err(|what| files.error(CUDA, what))?;
        Ok(published)
    }

    /// Refuses repetitions that not every rank took part in, and ranks that are there twice.
    fn whole(&self) -> Result<(), String> {
        let mut ranks: BTreeMap<_, BTreeSet<u32>> = BTreeMap::new();
        for s in &self.samples {
            let run = (&s.system, &s.case, s.tokens, (s.q_heads, s.kv_heads), &s.layout, &s.transport);
            let key = (run, s.pass, s.mode, s.wave, s.warm_up, s.sample);
            if !ranks.entry(key).or_default().insert(s.rank) {
                return Err(format!("{} on {}, sample {}: rank {} twice", s.system, s.case, s.sample, s.rank));
            }
        }
        for ((run, .., sample), found) in &ranks {
            let (system, case, .., layout, _) = run;
            let wanted = ranks_of(layout).unwrap_or(0) as usize;
            if found.len() != wanted {
                return Err(format!("{system} on {case}, sample {sample}: {} of {wanted} ranks", found.len()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::ranks_of;

    #[test]
    fn ranks_of_layouts() {
        assert_eq!(ranks_of("dp=2,cp=4"), Some(8));
        assert_eq!(ranks_of("cp=2"), Some(2));
        for wrong in ["", "dp", "dp=0", "xp=2", "dp=2;cp=2", "dp=70000,cp=70000"] {
            assert_eq!(ranks_of(wrong), None, "{wrong}");
        }
    }
}
