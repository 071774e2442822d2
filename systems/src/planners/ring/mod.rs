//! Ring attention (arXiv 2310.01889): rows stay, keys and values rotate; and what the grids of USP and LoongTrain share.
//!
//! At step s a rank attends to the keys that started on rank r - s while those of the next step arrive; two receive buffers
//! suffice, so the transfer for step s + 1 starts when the attention of step s - 1 is over. Every rank forwards what it
//! received, needed or not. The backward rotates keys and values again; dK and dV follow the ring one step behind, in f32,
//! each rank adding its contribution before it passes them on, and the last hop brings them home.
//!
//! | planner | rank r of R holds | source |
//! |---|---|---|
//! | `ring` | chunk r of R, bounds floor(i L / R) | arXiv 2310.01889 |
//! | `ring-zigzag` | chunks r and 2R-1-r of 2R, bounds floor(i L / 2R) | ring-flash-attention |
//! | `ring-striped` | every R-th row, from row r on | Striped Attention, arXiv 2311.09431 |
//!
//! The option `shard` says what is dealt: every document ("document", as ring-flash-attention does for packed sequences) or
//! the packed sequence as a whole ("sequence"). For stripes these are the rows whose position *in their document*, or *in
//! the packed sequence*, is r modulo R. By document is the default of `ring` and `ring-zigzag`: every rank then has the same
//! share of every document's pairs (of a contiguous chunk: the share of its place). By sequence there are fewer and longer
//! tiles, but a rank's share of pairs depends on where documents begin. It is the default of `ring-striped`: a stripe is a
//! fair share of every document wherever that begins, and the first ranks do not collect the odd rows of all documents.
//!
//! Chosen here. No length has to be divisible by anything. A rank's two chunks are one where they touch; what a rank
//! computed on its own keys stays at home, so sums make R - 1 hops where ring-flash-attention makes R; and sums that nobody
//! has contributed to yet are not sent, where it sends zeros: all three spare the ring tiles or transfers. Documents of fewer
//! rows than chunks fall to few ranks, which the plan's entry layout shows. Stripes behind the diagonal are exclusive causal
//! tiles of the whole stripes, one launch more a step, instead of stripes that are each cut by one row.
//!
//! Tiles: a launch takes all tiles of one mask of a step. `ring-zigzag` has about 2 R squared tiles a document, because the
//! kernel's rows must be neighbours in the packed sequence, and a rank's two chunks of a document are not.
//!
//! `Grid` generalises the ring: head shards (Ulysses groups) x ring positions, the ring in windows.

mod bound;
mod build;
mod grid;
mod planner;
mod shards;
mod tables;

pub(crate) use bound::load_bound;
pub(crate) use build::build;
pub(crate) use grid::{Grid, divisors};
pub(crate) use planner::shard_option;
pub use planner::{NAIVE, Ring, RingOptions, STRIPED, ZIGZAG};
pub use shards::{Deal, ShardBy};
