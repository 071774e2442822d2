//! What a report says: plain data, filled in by whoever has read the runs.
//!
//! Text fields are plain text in reading language; they are escaped on every way out. Numbers are in the
//! unit that the column, axis or field names. Nothing here depends on the clock.

use serde::{Deserialize, Serialize};

use crate::figure::Figure;

/// One report: everything that ends up on the page, in the order in which it is to be read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Site {
    /// Title of the report.
    pub title: String,
    /// One line below the title.
    pub subtitle: String,
    /// The question that the report answers.
    pub question: String,
    /// The answer, in paragraphs.
    pub verdict: Vec<String>,
    /// The answer in one picture.
    pub picture: Option<Figure>,
    /// What a reader asks beside that, each with what the runs say of it.
    pub answers: Vec<Answer>,
    /// What the first page shows below the answers: tables that their sentences rest on.
    pub overview: Vec<Figure>,
    /// The command line that made the run.
    pub command: String,
    /// Source revision, with a mark where the tree was not clean.
    pub revision: String,
    /// Machine profile by name, and what of it is measured or assumed.
    pub profile: String,
    /// Backend that produced the numbers.
    pub backend: String,
    /// Master seed, as text.
    pub seed: String,
    /// What the report was made from: run folders, experiment hashes.
    pub created_from: String,
    /// Systems in the order that fixes their colours and markers on every figure. Series that are not named
    /// here follow in order of first appearance.
    pub series_order: Vec<String>,
    /// Published beside ours, one row per quantity.
    pub summary: Vec<SummaryRow>,
    /// Figures, in reading order; each has a page named after its id.
    pub figures: Vec<Figure>,
    /// What each system is; each has a page.
    pub systems: Vec<SystemCard>,
    /// What each workload is; each has a page.
    pub workloads: Vec<WorkloadCard>,
    /// The runs that the report was made from; listed on a page of their own where there are several.
    pub runs: Vec<RunCard>,
    /// What keeps runs from being compared, or what a comparison of them says, in paragraphs.
    pub comparability: Vec<String>,
    /// Ratios between the runs.
    pub comparisons: Vec<Figure>,
    /// How the numbers were made.
    pub method: Vec<Section>,
    /// Name and value of each thing known of the machine and the software.
    pub environment: Vec<(String, String)>,
    /// Cells that gave no number, with the reason.
    pub failures: Vec<Failure>,
    /// Further files of the run.
    pub downloads: Vec<Download>,
    /// Further pages of the report.
    pub pages: Vec<Page>,
    /// How the report is found and cited.
    pub citation: Citation,
}

/// A question of a reader, what the runs say of it, and where that stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Answer {
    /// The question.
    pub question: String,
    /// The answer, in paragraphs that quote values of the runs.
    pub text: Vec<String>,
    /// Ids of figures and names of further pages with the values; those that the report does not have are left out.
    pub links: Vec<String>,
}

/// What search engines and reference managers read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Citation {
    /// What the data is, in a sentence or two.
    pub description: String,
    /// Authors, each as "Family, Given" or a group's name.
    pub authors: Vec<String>,
    /// Date of the data, `YYYY-MM-DD`; empty where it is not known.
    pub date: String,
    /// Version of the program.
    pub version: String,
    /// Licence of the data by its SPDX expression.
    pub licence: String,
    /// Keywords.
    pub keywords: Vec<String>,
}

/// A further page, beside `index.html` and linked from it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Page {
    /// Name of the file without `.html`, under the same rules as a figure's id; not `index`.
    pub name: String,
    /// Title.
    pub title: String,
    /// One line: what the page answers. Stands below the title and beside the link.
    pub subtitle: String,
    /// What it says, in paragraphs.
    pub text: Vec<String>,
    /// Name and value of each thing known of what the page rests on.
    pub facts: Vec<(String, String)>,
    /// Figures, in reading order. Their ids differ from those of all other pages.
    pub figures: Vec<Figure>,
    /// How the numbers were made.
    pub method: Vec<Section>,
}

/// How a number came to be. The six are never mixed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Timed on hardware.
    Measured,
    /// Priced by event simulation on a machine profile.
    #[default]
    Simulated,
    /// Simulated with launches timed on a card.
    Replayed,
    /// Counted or computed exactly from the inputs.
    Computed,
    /// From a model with a fitted or assumed parameter.
    Modelled,
    /// Quoted from a publication.
    Published,
}

impl Kind {
    /// The word the report prints.
    pub fn word(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Simulated => "simulated",
            Self::Replayed => "replayed",
            Self::Computed => "computed",
            Self::Modelled => "modelled",
            Self::Published => "published",
        }
    }
}

/// Whether a cell has a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It has.
    #[default]
    Ok,
    /// It was tried and failed.
    Failed,
    /// It was not tried.
    Skipped,
}

impl Status {
    /// The word the report prints.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// How ours compares with the published value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Within what the caller calls agreement.
    Agrees,
    /// Outside it.
    Differs,
    /// The interval does not tell.
    Unclear,
    /// Nothing published to compare with.
    #[default]
    None,
}

/// One quantity of the table that opens the report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SummaryRow {
    /// Id of the figure the row belongs to; a link where the report has that figure.
    pub figure: String,
    /// Workload.
    pub dataset: String,
    /// System, pair or placement.
    pub system: String,
    /// The quantity in words, with its coordinates.
    pub quantity: String,
    /// Unit of `published_value`, `value` and the interval; empty where they are pure numbers.
    pub unit: String,
    /// The published number as the source words it ("up to 2.54x", "< 0.7%"), where there is one.
    pub published: Option<String>,
    /// Ours.
    pub value: Option<f64>,
    /// Ours over published, where that makes sense.
    pub ratio: Option<f64>,
    /// Lower end of the 95% interval of `value`.
    pub ci_low: Option<f64>,
    /// Upper end of the 95% interval of `value`.
    pub ci_high: Option<f64>,
    /// Samples (steps, launches) behind `value`.
    pub n: Option<u64>,
    /// How `value` came to be.
    pub kind: Kind,
    /// Whether there is a value.
    pub status: Status,
    /// Why there is none, or why ours differs.
    pub reason: String,
    /// Comparison with the published value.
    pub verdict: Verdict,
    /// The comparison in a few words; the page shows the verdict's own word where this is empty.
    pub verdict_text: String,
}

/// What a system is and how it was set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SystemCard {
    /// Name as on the figures.
    pub name: String,
    /// Its placement.
    pub placement: String,
    /// Its planner.
    pub planner: String,
    /// What it does, in a few sentences.
    pub description: String,
    /// Where it was published.
    pub source: String,
    /// Options in force.
    pub options: Vec<SystemOption>,
    /// What a reader has to know before comparing it.
    pub notes: Vec<String>,
    /// Where it wins and where it loses, in sentences that quote values of the run.
    pub findings: Vec<String>,
    /// Figures of its page: how it stands against others, a wave over time. Their ids differ from those of all other figures.
    pub figures: Vec<Figure>,
}

/// An option of a system.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SystemOption {
    /// Name as in experiments.
    pub name: String,
    /// Value in force.
    pub value: String,
    /// What it sets.
    pub meaning: String,
}

/// What a workload is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkloadCard {
    /// Name as in the tables.
    pub name: String,
    /// Where the lengths come from.
    pub description: String,
    /// Name and value of each thing known of it: window, packing, fingerprint.
    pub facts: Vec<(String, String)>,
}

/// One of the runs that a report was made from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunCard {
    /// Name of the run in this report.
    pub name: String,
    /// Name and value of each thing that tells it from others: date, experiments, backend, profile, seed, revision.
    pub facts: Vec<(String, String)>,
}

/// A titled piece of text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Section {
    /// Heading.
    pub title: String,
    /// Paragraphs.
    pub paragraphs: Vec<String>,
}

/// A cell without a number.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Failure {
    /// Experiment or figure.
    pub experiment: String,
    /// Coordinates of the cell in words.
    pub cell: String,
    /// Failed or skipped.
    pub status: Status,
    /// Why.
    pub reason: String,
}

/// A file beside the page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Download {
    /// Text of the link.
    pub label: String,
    /// Path relative to the page, with `/`.
    pub href: String,
    /// What the file holds.
    pub description: String,
}
