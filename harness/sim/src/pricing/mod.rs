//! Time of kernel calls and transfers from a profile.
//!
//! **One tile a call** costs what the profile's table of its mask says, exactly at measured sizes. Nodes at every power of two of rows, keys
//! and heads hold the logarithm of the time: measured values where there are some, elsewhere a two-regime law (launch overhead plus the
//! larger of the longest block's time on one multiprocessor and the work at the full card's rate) times the correction interpolated
//! between measured neighbours. Nodes are made monotone in every direction, then interpolated. Beyond the longest rows the law runs at
//! constant FLOP/s; below 128 rows or keys a tile costs what 128 cost, since a block has 128.
//!
//! **Many tiles a call** fill the card together: `overhead + penalty x sum of card time`, never below any of its tiles alone. The card time of a
//! tile is `pairs x a(keys) + blocks x b` by mask and pass, fitted on the single calls that have at least four blocks a multiprocessor; blocks are
//! 128 rows forward and 128 keys backward. The bottom-right backward does not skip masked blocks, so its pairs are rows x keys. The penalty
//! of ragged calls is the geometric mean over the profile's ragged rows, by pass, for squares and for bottom-right tiles.
//!
//! A causal call of squares alone uses the top-left mask and its table; if any tile has fewer rows than keys, the call is bottom-right and its
//! squares cost what they cost there. Rows that see no key cost nothing. KV heads do not enter: the tables hold groups of 1 to 8.
//!
//! Errors of the built-in `h200` profile against its own rows, listed by [`Pricing::table_errors`] and bounded in `tests/sim/pricing.rs`: ragged calls
//! at most 5.5%, below 2% in the mean (the penalties are fitted on them); single calls of at least 1 ms at most 3.5%, of 30 microseconds at most
//! 13%, and none where the rows do not contradict each other. docs/CALIBRATION.md has the table and what was not measured.

mod card;
mod check;
mod link;
mod nodes;
mod octaves;
mod throughput;

pub use card::Pricing;
pub use check::TableError;
pub(crate) use link::LinkFit;
