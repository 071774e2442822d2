use std::ops::RangeInclusive;
use std::path::Path;

use serde::Deserialize;
use skewbench_cuda::run::Transport;
use skewbench_plan::{AttentionShape, Layout};
use skewbench_store::parse_strict;

use crate::failure::{Failure, nearest};

include!(concat!(env!("OUT_DIR"), "/cards.rs"));

/// A study of waves that cards execute.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyFile {
    /// Title.
    pub title: String,
    /// What is measured.
    pub description: String,
    /// Systems, by name or pair.
    pub systems: Vec<String>,
    /// Elements of a head.
    pub head_dim: u16,
    /// Timed executions of a wave in a round.
    pub samples: u32,
    /// Untimed executions before them.
    pub warm_up: u32,
    /// Samples of a round beside which computation alone, transfers alone and bare attention calls are timed, too.
    #[serde(default = "three")]
    pub apart: u32,
    /// How often the systems take turns.
    pub rounds: u32,
    /// What carries transfers; every case runs with each.
    pub transports: Vec<Transport>,
    /// Master seed of the packed windows.
    #[serde(default)]
    pub seed: u64,
    /// Model whose token-wise work is timed beside the attention, on the tokens of a rank of every case with its heads.
    pub model: Option<String>,
    /// Cases.
    #[serde(rename = "case")]
    pub cases: Vec<CaseFile>,
}

/// Waves of one layout on one workload.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    /// Name in tables.
    pub name: String,
    /// Lengths of the documents of every packed sequence; or a workload.
    #[serde(default)]
    pub documents: Vec<u32>,
    /// Preset or file.
    pub workload: Option<String>,
    /// Tokens of a window of the workload.
    pub window_tokens: Option<u32>,
    /// Data- and context-parallel ranks.
    pub layout: LayoutFile,
    /// Query and KV heads; the case runs with each.
    pub heads: Vec<(u16, u16)>,
    /// Waves of the step.
    #[serde(default = "one")]
    pub waves: u32,
    /// Timed executions of a wave in a round, in place of the study's.
    pub samples: Option<u32>,
    /// Untimed executions before them, in place of the study's.
    pub warm_up: Option<u32>,
    /// Samples of a round that have parts of the wave beside them, in place of the study's.
    pub apart: Option<u32>,
    /// How often the systems take turns, in place of the study's.
    pub rounds: Option<u32>,
    /// Added to the study's seed: other windows of the workload.
    #[serde(default)]
    pub seed: u64,
    /// Systems in place of the study's.
    #[serde(default)]
    pub systems: Vec<String>,
    /// What carries transfers, in place of the study's.
    #[serde(default)]
    pub transports: Vec<Transport>,
}

/// Ranks of a case.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutFile {
    /// Data-parallel ranks.
    #[serde(default = "one")]
    pub dp: u32,
    /// Context-parallel ranks.
    #[serde(default = "one")]
    pub cp: u32,
}

fn one() -> u32 {
    1
}

fn three() -> u32 {
    3
}

impl LayoutFile {
    /// The layout, all ranks on one node.
    pub fn layout(self) -> Layout {
        Layout { cards_per_node: self.dp.saturating_mul(self.cp), ..Layout::dp_cp(self.dp, self.cp) }
    }
}

impl CaseFile {
    /// Ranks.
    pub fn ranks(&self) -> u32 {
        self.layout.dp.saturating_mul(self.layout.cp)
    }

    /// Sequences of the step.
    ///
    /// # Errors
    /// More than a step can have.
    pub fn sequences(&self) -> Result<u32, Failure> {
        let too_many = || Failure::config(format!("case {}: more than {} sequences", self.name, u32::MAX));
        self.layout.dp.checked_mul(self.waves).ok_or_else(too_many)
    }

    /// Seed of its windows under the seed of the study.
    pub fn seed(&self, of_study: u64) -> u64 {
        of_study.wrapping_add(self.seed)
    }

    /// Shape of the attention with these heads.
    pub fn shape(heads: (u16, u16), head_dim: u16) -> AttentionShape {
        AttentionShape { q_heads: heads.0, kv_heads: heads.1, head_dim }
    }
}

/// Ids of the shipped studies, sorted.
pub fn studies() -> impl Iterator<Item = &'static str> {
    EMBEDDED.iter().map(|(id, _)| *id)
}

/// A study with its id and text.
#[derive(Clone, Debug)]
pub struct FoundStudy {
    /// Path below `experiments/` without suffix, or the file's stem.
    pub id: String,
    /// Its text.
    pub text: String,
    /// Parsed.
    pub study: StudyFile,
}

/// Finds a study by id or path.
///
/// # Errors
/// No study has the name (the nearest is offered), the file cannot be read, or a value that no study can have.
pub fn find_study(name: &str) -> Result<FoundStudy, Failure> {
    if name.ends_with(".toml") {
        let text = std::fs::read_to_string(name).map_err(|e| Failure::config(format!("{name}: {e}")))?;
        let id = Path::new(name).file_stem().map_or_else(|| name.to_owned(), |s| s.to_string_lossy().into_owned());
        return read(id, text, name);
    }
    let ends = |id: &str| id == name || id.rsplit('/').next() == Some(name);
    match EMBEDDED.iter().find(|(id, _)| ends(id)) {
        Some((id, text)) => read((*id).to_owned(), (*text).to_owned(), &format!("experiments/{id}.toml")),
        None => {
            let hint = nearest(name, studies());
            let list = studies().collect::<Vec<_>>().join(", ");
            Err(Failure::usage(format!(
                "no study for cards is called {name}{hint}; known: {list}, or a path to a TOML file; other experiments run with --backend sim or replay"
            )))
        }
    }
}

/// File of the study beside its samples.
pub(super) const STUDY: &str = "study.toml";

/// The study of a run on cards.
///
/// # Errors
/// As [`find_study`].
pub(super) fn parse_study(folder: &Path) -> Result<StudyFile, Failure> {
    let name = folder.join(STUDY).display().to_string();
    Ok(find_study(&name)?.study)
}

/// Samples that a user may ask for.
const SAMPLES: RangeInclusive<u32> = 1..=10_000;

fn read(id: String, text: String, file: &str) -> Result<FoundStudy, Failure> {
    let study: StudyFile = parse_strict(&text, file).map_err(Failure::config)?;
    let wrong = |what: String| Err(Failure::config(format!("{file}: {what}")));
    if study.systems.is_empty() || study.cases.is_empty() || study.transports.is_empty() {
        return wrong("a study needs systems, transports and at least one [[case]]".to_owned());
    }
    let counts = [("samples", study.samples), ("rounds", study.rounds)];
    if let Some((key, n)) = counts.into_iter().find(|(_, n)| !SAMPLES.contains(n)) {
        return wrong(format!("{key} = {n}; give {} to {}", SAMPLES.start(), SAMPLES.end()));
    }
    if !(8..=256).contains(&study.head_dim) || !study.head_dim.is_multiple_of(8) {
        return wrong("head_dim is a multiple of 8 from 8 to 256".to_owned());
    }
    let own = study.cases.iter().flat_map(|case| case.warm_up.into_iter().chain(case.apart));
    if [study.warm_up, study.apart].into_iter().chain(own).any(|n| n > *SAMPLES.end()) {
        return wrong(format!("warm_up and apart are at most {}", SAMPLES.end()));
    }
    for case in &study.cases {
        let wrong = |what: String| wrong(format!("case {}: {what}", case.name));
        if case.documents.is_empty() == case.workload.is_none() {
            return wrong("give either documents or a workload".to_owned());
        }
        if case.workload.is_none() && case.window_tokens.is_some() {
            return wrong("window_tokens is that of a workload; remove it".to_owned());
        }
        let counts = [case.layout.dp, case.layout.cp, case.waves];
        if counts.iter().any(|n| !SAMPLES.contains(n)) || case.heads.is_empty() {
            return wrong(format!("dp, cp and waves are 1 to {}, and heads are given", SAMPLES.end()));
        }
        if case.samples.into_iter().chain(case.rounds).any(|n| !SAMPLES.contains(&n)) {
            return wrong(format!("samples and rounds; give {} to {}", SAMPLES.start(), SAMPLES.end()));
        }
        if let Some((q, kv)) = case.heads.iter().find(|(q, kv)| *kv == 0 || !q.is_multiple_of(*kv)) {
            return wrong(format!("{q} query heads cannot share {kv} KV heads"));
        }
        if case.documents.contains(&0) {
            return wrong("a document has at least one token".to_owned());
        }
    }
    Ok(FoundStudy { id, text, study })
}
