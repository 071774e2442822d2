//! Measurements that ship with the program: what profiles were validated with, and published runs on cards.

mod card;
mod files;
mod layer;
mod published;
mod speedups;
mod states;
mod timed;
mod validation;

pub use card::Card;
pub use files::{Shipped, published, validation_of};
pub use layer::{LayerProduct, layer_ns};
pub use published::{Failed, Mode, PeerSample, Published, RunFolder, Sample, write_about};
pub use speedups::Speedup;
pub use states::{Clocks, StateRow, clocks};
pub use timed::{Case, PeerTimes, Times, WaveTimes, independent, times_of, times_of_peers};
pub use validation::{Accuracy, Compared, Launch, Placed, Validation, pass_name};
