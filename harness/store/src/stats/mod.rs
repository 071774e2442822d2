//! Statistics of raw samples. Nothing here drops a sample, and nothing depends on the number of threads.

mod bootstrap;
mod compare;
mod describe;
mod geomean;

pub use bootstrap::{Bootstrap, Interval, stream};
pub use compare::{CompareOptions, Comparison, Direction, Verdict, compare};
pub use describe::{Summary, mad, mean, median, outliers, quantile, standard_error};
pub use geomean::{GeometricMeans, LeftOut, geometric_means};
