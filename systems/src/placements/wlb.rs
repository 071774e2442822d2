//! WLB-LLM's variable-length packing (OSDI'25, arXiv 2503.17924): the documents of a step are taken out of their packed
//! sequences and packed anew, by predicted work, into as many micro-batches of unequal length; outliers wait for later steps.
//!
//! No code of the packing is public with the paper; this is written from what is known about it and from the public
//! reimplementation in DistCA (arXiv 2510.18121), which has no queue.
//!
//! - **Packing** (as in DistCA). Documents longest first, each into the micro-batch of least work if it fits there within
//!   Lmax, else into the shortest micro-batch if it fits there, else it is left over. Ties: the lower index. A document of L
//!   tokens has the work (L / B)^2 + L / B, attention and the rest of the layer; `linear_tokens` is B, the length at which
//!   both cost the same, 128K as in DistCA. Option `work = "pairs"` counts the attention by exact pairs. Comparisons are on
//!   whole numbers. Lmax is `lmax` windows, 2 as in DistCA; the paper's value is not known.
//! - **Outliers** (placement `wlb`). Unverified, since the paper's text on it was not at hand: documents above length
//!   thresholds go to first-in first-out queues, one a level, and when a queue holds one document a micro-batch, each
//!   micro-batch gets one of them. Thresholds, levels and the longest delay are unknown and are options: level i of
//!   `levels` starts at a share `outlier + (1 - outlier) i / levels` of the window, and no document waits more than
//!   `max_delay` steps. A queue whose first document may wait no longer is emptied as a whole: outliers that cannot be
//!   spread evenly over a step at least disturb one step and not several. Released documents are packed like others,
//!   where least work already gives each micro-batch one.
//! - **Left over documents** wait for the next step too, with the same longest delay. Documents that may wait no longer are
//!   packed before all others; what of them does not fit goes to the micro-batch of least work beyond Lmax, as DistCA does
//!   with all that is left over. With steps of one size, sequences of at most a window and `lmax` of at least 2 that never
//!   happens: the shortest micro-batch then holds at most a window. A document longer than Lmax goes beyond it at once.
//! - **Empty micro-batches.** When so much waits that a micro-batch would be empty, it takes the document that has waited
//!   longest (the longest level's of these). When nothing waits it stays empty, a packed sequence of no tokens, where DistCA
//!   adds a document of 128 tokens that nobody delivered.
//! - **Waves.** Which micro-batches run at once is not known. By default neighbours do (`deal = "arrival"`): packing starts
//!   with the longest document in the first micro-batch, the next in the second, and so on, so that neighbours hold
//!   documents of like length and, as their work is even, like shares of attention. `deal = "sorted"` takes them by work,
//!   which differs little between them and then says nothing about their attention.
//! - **End of the data.** What still waits runs in extra steps of the fewest waves in which micro-batches hold a window on
//!   average, at most as many waves as the last step had.
//!
//! `wlb-no-deferral` is the packing alone, what DistCA and Libra (arXiv 2607.23250) compare with: no queue, and what is left
//! over goes beyond Lmax in its own step, so that steps keep their documents.

mod micro_batches;
mod placer;
mod queues;

use serde::Deserialize;
use skewbench_plan::{Placement, Placer};

use super::{Deal, Measure};
use crate::registry::PlacementEntry;
use crate::{Accepts, DefaultValue, OptionSpec};
use placer::WlbPlacer;

const WORK: OptionSpec = OptionSpec {
    name: "work",
    alias: None,
    default: DefaultValue::Text("l_squared"),
    accepts: Accepts::Choice(&["l_squared", "pairs"]),
    summary: "attention work of a document: its squared length, or twice its exact unmasked pairs",
};

const LINEAR_TOKENS: OptionSpec = OptionSpec {
    name: "linear_tokens",
    alias: None,
    default: DefaultValue::Integer(128 << 10),
    accepts: Accepts::Integer { min: 0, max: 1 << 40 },
    summary: "tokens of a document whose attention takes as long as its linear work; 0 = linear work is not counted",
};

const LMAX: OptionSpec = OptionSpec {
    name: "lmax",
    alias: None,
    default: DefaultValue::Number(2.0),
    accepts: Accepts::Number { min: 1.0, max: 1024.0 },
    summary: "greatest length of a micro-batch, in windows",
};

const DEAL: OptionSpec = OptionSpec {
    default: DefaultValue::Text("arrival"),
    accepts: Accepts::Choice(&["arrival", "sorted"]),
    summary: "micro-batches are dealt to waves in their order, or heaviest first",
    ..super::deal::DEAL
};

const LEVELS: OptionSpec = OptionSpec {
    name: "levels",
    alias: None,
    default: DefaultValue::Integer(2),
    accepts: Accepts::Integer { min: 0, max: 64 },
    summary: "queues of outliers, by length",
};

const OUTLIER: OptionSpec = OptionSpec {
    name: "outlier",
    alias: None,
    default: DefaultValue::Number(0.5),
    accepts: Accepts::Number { min: 0.0, max: 1.0 },
    summary: "length from which a document is an outlier, in windows",
};

const MAX_DELAY: OptionSpec = OptionSpec {
    name: "max_delay",
    alias: None,
    default: DefaultValue::Integer(16),
    accepts: Accepts::Integer { min: 0, max: 1 << 20 },
    summary: "steps that a document may wait",
};

const PACKING: &[OptionSpec] = &[WORK, LINEAR_TOKENS, LMAX, DEAL];
const DEFERRAL: &[OptionSpec] = &[LEVELS, OUTLIER, MAX_DELAY];

/// Registry entry.
pub const ENTRY: PlacementEntry = PlacementEntry {
    name: "wlb",
    summary: "documents packed by work into micro-batches of unequal length, outliers kept for later steps",
    source: "WLB-LLM, arXiv 2503.17924; packing as in DistCA, arXiv 2510.18121",
    stateful: true,
    options: &[WORK, LINEAR_TOKENS, LMAX, DEAL, LEVELS, OUTLIER, MAX_DELAY],
    build: |options| {
        let (packing, deferral) = (options.section(PACKING)?, options.section(DEFERRAL)?);
        Ok(Box::new(Wlb { name: ENTRY.name, packing, deferral: Some(deferral) }))
    },
};

/// Registry entry of the packing alone.
pub const NO_DEFERRAL: PlacementEntry = PlacementEntry {
    name: "wlb-no-deferral",
    summary: "documents packed by work into micro-batches of unequal length, inside their step",
    source: "WLB-LLM, arXiv 2503.17924, as reimplemented in DistCA, arXiv 2510.18121",
    stateful: false,
    options: PACKING,
    build: |options| Ok(Box::new(Wlb { name: NO_DEFERRAL.name, packing: options.section(PACKING)?, deferral: None })),
};

/// How documents are packed.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Packing {
    work: Measure,
    linear_tokens: u64,
    lmax: f64,
    deal: Deal,
}

/// Which documents wait, and for how long.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Deferral {
    levels: u32,
    outlier: f64,
    max_delay: u64,
}

impl Deferral {
    /// No document waits.
    const NONE: Self = Self { levels: 0, outlier: 1.0, max_delay: 0 };
}

/// The placement, with or without deferral.
#[derive(Clone, Copy, Debug)]
struct Wlb {
    name: &'static str,
    packing: Packing,
    deferral: Option<Deferral>,
}

impl Placement for Wlb {
    fn name(&self) -> &str {
        self.name
    }

    fn stateful(&self) -> bool {
        self.deferral.is_some()
    }

    fn placer(&self) -> Box<dyn Placer + '_> {
        Box::new(WlbPlacer::new(self.packing, self.deferral.unwrap_or(Deferral::NONE)))
    }
}

/// A document and the step that delivered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Document {
    tokens: u32,
    delivered: u64,
}
