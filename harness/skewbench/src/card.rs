//! The card of this process, opened once, before anything is written.

use skewbench_cuda::attention::LaunchTimer;
use skewbench_cuda::{CardInfo, launch_timer};

use crate::cells::ReplayKey;
use crate::failure::Failure;

/// Where the random operands of timed launches start: their values do not change times, and are the same in every run.
pub const OPERANDS_SEED: u64 = 1;

/// A card that times launches.
pub struct Card {
    /// What it is.
    pub info: CardInfo,
    /// Times launches on it.
    pub timer: Box<dyn LaunchTimer>,
}

impl Card {
    /// Opens a card by its ordinal.
    ///
    /// # Errors
    /// [`Exit::Unavailable`](crate::failure::Exit::Unavailable) with what is missing.
    pub fn open(ordinal: usize) -> Result<Self, Failure> {
        Ok(Self { info: CardInfo::read(ordinal)?, timer: Box::new(launch_timer(ordinal, OPERANDS_SEED)?) })
    }

    /// How cells name it.
    pub fn key(&self, budget_s: u32) -> ReplayKey {
        let CardInfo { name, driver, cudnn, .. } = &self.info;
        ReplayKey { card: name.clone(), driver: driver.clone(), cudnn: cudnn.clone(), budget_s }
    }
}
