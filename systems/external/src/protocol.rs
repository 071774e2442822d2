//! The messages. Every message is one line of JSON; the program answers each line with one line.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use skewbench_plan::{AttentionShape, Layout, PackedSequence, Plan, Scope};

use crate::error::{Cause, excerpt};

/// Version of the protocol.
pub const PROTOCOL: u64 = 1;

/// Characters of a program's output in a message.
pub(crate) const EXCERPT: usize = 160;

/// What skewbench asks.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Request<'a> {
    /// Who are you?
    Hello {
        /// Version that skewbench speaks.
        protocol: u64,
    },
    /// Deal the sequences of a step to waves.
    Place {
        /// Number of the request.
        id: u64,
        /// Seed of this step.
        seed: u64,
        /// Position of the step in its workload.
        step: u64,
        /// Tokens of a full packed sequence.
        window: u32,
        /// Document lengths of every packed sequence, in loader order.
        sequences: &'a [PackedSequence],
        /// Layout of the job.
        layout: Layout,
        /// Data-parallel ranks `[first, end)` of every pool of a wave.
        pools: Vec<[u32; 2]>,
        /// Heads of one tensor-parallel shard.
        shape: AttentionShape,
        /// Values of the program's options.
        options: &'a Map<String, Value>,
    },
    /// Plan the attention of one domain.
    Plan {
        /// Number of the request.
        id: u64,
        /// Seed of the run.
        seed: u64,
        /// Document lengths of every packed sequence.
        sequences: &'a [&'a PackedSequence],
        /// Context-parallel ranks of a sequence: rank `s * cp + c` holds shard `c` of sequence `s`.
        cp: u32,
        /// Ranks of the domain.
        ranks: u32,
        /// Heads of one tensor-parallel shard.
        shape: AttentionShape,
        /// Node of every rank.
        nodes: &'a [u32],
        /// Time of every rank's card over the nominal time; empty when all are nominal or unknown.
        time_factors: &'a [f64],
        /// Values of the program's options.
        options: &'a Map<String, Value>,
    },
}

/// What the program says about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// `"hello"`.
    #[serde(rename = "type")]
    kind: HelloTag,
    /// Version of the protocol that it speaks.
    pub protocol: u64,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// It deals sequences to waves.
    #[serde(default)]
    pub places: bool,
    /// It plans domains.
    #[serde(default)]
    pub plans: bool,
    /// Which ranks it plans together.
    #[serde(default)]
    pub scope: Together,
    /// No rank's load exceeds the mean by more than this factor; nothing is promised when absent.
    #[serde(default)]
    pub load_bound: Option<f64>,
    /// Options that it takes.
    #[serde(default)]
    pub options: Vec<Declared>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum HelloTag {
    Hello,
}

/// Which ranks plan together, as programs write it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Together {
    /// The CP group of one sequence.
    Sequence,
    /// The P sequences of a pool.
    #[default]
    Pool,
    /// All sequences of a wave.
    Wave,
}

impl From<Together> for Scope {
    fn from(scope: Together) -> Self {
        match scope {
            Together::Sequence => Self::Sequence,
            Together::Pool => Self::Pool,
            Together::Wave => Self::Wave,
        }
    }
}

/// An option that a program takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declared {
    /// Name: `[a-z][a-z0-9_]*`.
    pub name: String,
    /// What it does, with its unit.
    #[serde(default)]
    pub summary: String,
    /// What its values are.
    pub kind: Kind,
    /// Value when none is given.
    pub default: Value,
    /// Least value of an integer or number.
    #[serde(default)]
    pub min: Option<Value>,
    /// Greatest value of an integer or number.
    #[serde(default)]
    pub max: Option<Value>,
    /// Accepted words of a choice.
    #[serde(default)]
    pub words: Vec<String>,
}

/// What the values of an option are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// True or false.
    Flag,
    /// A whole number in `[min, max]`.
    Integer,
    /// A number in `[min, max]`.
    Number,
    /// One of `words`.
    Choice,
}

/// What the program answers to `place` and `plan`: one of the four beside the id.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Response {
    pub(crate) id: u64,
    /// Sequence index of every data-parallel rank, by wave.
    #[serde(default)]
    pub(crate) waves: Option<Vec<Vec<u32>>>,
    /// Who computes which block.
    #[serde(default)]
    pub(crate) assignment: Option<Assigned>,
    /// Everything.
    #[serde(default)]
    pub(crate) plan: Option<Box<Plan>>,
    /// Why there is no answer.
    #[serde(default)]
    pub(crate) error: Option<String>,
}

/// Who computes which block.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Assigned {
    #[serde(default = "one")]
    pub(crate) head_shards: u32,
    #[serde(default = "four")]
    pub(crate) pieces: u32,
    #[serde(default = "yes")]
    pub(crate) resend: bool,
    pub(crate) blocks: Vec<AssignedBlock>,
}

/// Query rows `[start, end)` of a packed sequence with the rank that computes them, for every head shard.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AssignedBlock {
    pub(crate) seq: u32,
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) workers: Vec<u32>,
}

fn one() -> u32 {
    1
}

fn four() -> u32 {
    4
}

fn yes() -> bool {
    true
}

/// A request as a line.
pub(crate) fn line(request: &Request<'_>) -> Result<Vec<u8>, Cause> {
    let mut line = serde_json::to_vec(request).map_err(|e| Cause::Io(e.to_string()))?;
    line.push(b'\n');
    Ok(line)
}

/// Reads the answer to `hello`.
pub(crate) fn read_hello(line: &[u8]) -> Result<Hello, Cause> {
    let invalid = |why: String| Cause::Invalid { expected: "hello", why, line: excerpt(line, EXCERPT) };
    let value: Value = serde_json::from_slice(line).map_err(|e| invalid(e.to_string()))?;
    // Another version may have other fields: it is named before they are looked at.
    match value.get("protocol") {
        Some(version) if version.as_u64() == Some(PROTOCOL) => {}
        Some(version) => return Err(Cause::Version { got: excerpt(version.to_string().as_bytes(), EXCERPT) }),
        None => return Err(invalid("it names no protocol".to_owned())),
    }
    let hello: Hello = serde_json::from_value(value).map_err(|e| invalid(e.to_string()))?;
    for (what, text) in [("name", &hello.name), ("version", &hello.version)] {
        if text.trim().is_empty() || text.len() > 200 || text.contains(char::is_control) {
            return Err(invalid(format!("the {what} must have 1 to 200 bytes on one line")));
        }
    }
    if !hello.places && !hello.plans {
        return Err(invalid("it neither places nor plans".to_owned()));
    }
    if let Some(bound) = hello.load_bound.filter(|b| !b.is_finite() || *b < 1.0) {
        return Err(invalid(format!("a load bound of {bound}; max / mean is at least 1")));
    }
    crate::options::specs(&hello.options).map_err(invalid)?;
    Ok(hello)
}

/// Reads the answer to request `asked`.
pub(crate) fn read_response(line: &[u8], asked: u64, expected: &'static str) -> Result<Response, Cause> {
    let response: Response = serde_json::from_slice(line).map_err(|e| Cause::Invalid {
        expected,
        why: e.to_string(),
        line: excerpt(line, EXCERPT),
    })?;
    if response.id != asked {
        return Err(Cause::Id { asked, got: response.id });
    }
    if let Some(why) = response.error {
        return Err(Cause::Refused(excerpt(why.as_bytes(), 4 * EXCERPT)));
    }
    Ok(response)
}
