//! What a card and its links do, each part with its source: measured by a run, assumed, or from a datasheet.

mod assumed;
mod load;
mod overrides;
mod require;
mod types;
mod units;

pub use assumed::ASSUMED;
pub use load::{BUILT_IN, built_in};
pub use overrides::Overrides;
pub(crate) use require::require;
pub use types::{
    Attention, Card, CardSpeed, Contention, ContentionFactors, Copies, Gemm, IntraNode, LaunchOverhead, Link,
    MeasuredOn, Network, Nic, Profile, RaggedCall, Single, Source, SourceKind, TablePass, Transport,
};
pub use units::Bandwidth;
