//! Replay: launches of some ranks of some waves are timed on one card; whole waves are simulated with those times.
//!
//! **Waves** are drawn evenly from the steps, as many for every system; those of one number are timed for all systems before
//! the next number's, so that a card that slows down slows all alike.
//!
//! **Ranks.** Timed are those that the simulator predicts within 5% of the wave's slowest, slowest first and a bounded number
//! of them, and a seeded random sample of the others. Launches of one shape are timed once and counted wherever they occur,
//! also in ranks that were not chosen.
//!
//! **Cells.** Where the fewest waves of all cells do not fit the budget, cells are left out, each with the reason: of every
//! panel in turn the one that takes least stays. A launch that several cells or figures need is timed once for all.
//!
//! **The others.** A launch without a time takes its price times the median, over the sample, of a rank's measured over
//! predicted launch time in that pass. A rank that was not timed is bounded by its predicted end times the largest such ratio
//! of both passes: where the bound passes the slowest rank that was timed, the wave is marked as not bounded. The bound is a
//! rule, not a proof: it fails where ratios of the ranks left out are larger than any in the sample, which for a sample of k
//! ranks has probability 1 / (k + 1) for each of them.

mod choose;
mod draw;
mod plan;
mod select;
mod session;
mod shape;

pub use choose::{Chosen, EFFORTS, Effort, choose};
pub use draw::{draw_order, least_waves};
pub use plan::{DrawnWave, Prices, calls};
pub use session::{Measured, Session, Timing, prepare};
pub use shape::{Samples, Shape};
