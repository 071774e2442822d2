//! Metrics, recomputed from stored samples; docs/METRICS.md derives each.

mod balance;
mod linear;
mod proxy;
mod spread;
mod values;
mod waves;

pub use balance::{BalanceView, WindowsView};
pub use linear::LinearTimes;
pub use proxy::ProxyView;
pub use spread::runtime_spread;
pub use values::{Draws, Estimated, estimate_mean, estimate_ratio, estimate_sums};
pub use waves::{Delay, StepView, WaveView, WavesView};
