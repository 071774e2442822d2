/// Linear work for one token of a packed sequence on one card of its context-parallel group, for one layer, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearTimes {
    /// Forward.
    pub forward_ps: f64,
    /// Backward, recomputation included.
    pub backward_ps: f64,
}

impl LinearTimes {
    /// Both together.
    pub fn both_ps(self) -> f64 {
        self.forward_ps + self.backward_ps
    }
}
