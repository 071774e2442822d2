//! From attention times to step times: token-wise work, 1F1B pipeline, gradient reduction, memory.
//!
//! Ranks of a pool wait for each other in every layer, so the caller passes the attention time of a data-parallel rank's pool. Beyond a pool ranks wait
//! per micro-batch ([`Wait::PerMicroBatch`], as expert parallelism imposes) or per step ([`Wait::PerStep`], plain data parallelism).

mod fit;
mod linear;
mod memory;
mod model;
mod pipeline;
mod sharding;
mod step;

pub use fit::{FitError, a_of_window, fit_linear_ps};
pub use linear::{LinearMode, Recompute, StageLinear, layers_of_stage};
pub use memory::{Memory, MemoryInput};
pub use model::Model;
pub use pipeline::{PipelineTimes, one_f_one_b};
pub use sharding::{ShardGroups, Sharding, ShardingTimes};
pub use step::{StepError, StepInput, StepTime, Wait, WaveAttention, gradient_reduction_ps};
