//! Time of kernel calls and transfers from a profile.
//!
//! A kernel call is blocks that multiprocessors take from a list: blocks of 128 rows forward, each stepping over 128 keys at a time, blocks of
//! 128 keys backward, each stepping over 64 rows. A call costs `overhead + tiles, rows and keys + makespan + slowdown x work`:
//!
//! - the makespan is when the last block ends (module `schedule`): whole rounds of equal blocks, ramps of unequal ones in the order in which the
//!   kernels issue them (tile by tile, head by head, forward from the first rows, backward from the first keys);
//! - the work is what all blocks take spread evenly; the slowdown is that of a card which is busy everywhere (clocks, memory), and grows with
//!   the length of a call, since the power limit lowers clocks;
//! - a block costs a constant and a constant a step. Masked steps are skipped, but not in the backward of bottom-right tiles.
//!
//! There is a law for calls of one tile of at least 1024 rows, which have graphs of their exact shape, and one for all others, which run ragged
//! kernels: there every tile costs something beside its blocks, and blocks that follow others on their multiprocessor take less than the first.
//! Backward, query heads that share keys cost kernels that sum over them. A tile alone whose keys do not fill their last block of 128 runs a
//! slower kernel, forward only without a mask. The numbers of a law are fitted by least squares of the logarithm to all rows of the profile,
//! rows far off counting less, and with expectations from the card's peak rates that few rows suffice to overrule.
//!
//! A causal call of squares alone uses the top-left mask; if any tile has fewer rows than keys, the call is bottom-right and its squares cost
//! what they cost there. Rows that see no key cost nothing. KV heads enter as whether query heads share them.
//!
//! Prices never fall when a call gets more rows, keys, heads or tiles, except where cards, too, get faster: where a causal tile becomes a
//! square, and a tile alone gets 1024 rows, or keys in whole blocks. Errors against a profile's own rows are listed by
//! [`Pricing::table_errors`] and bounded in `tests/sim/pricing.rs`; docs/CALIBRATION.md has the table.

mod card;
mod check;
mod droop;
mod fit;
mod law;
mod link;
mod schedule;

pub use card::Pricing;
pub use check::TableError;
pub(crate) use link::LinkFit;
