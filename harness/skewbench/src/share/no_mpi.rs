use std::convert::Infallible;

use skewbench_cpu::Transport;

/// Stands for MPI in a program that is built without it: it cannot be started.
pub struct MpiSession {
    never: Infallible,
}

impl MpiSession {
    /// # Errors
    /// Always: this program is built without MPI.
    pub fn start(_about: &str, _exit: i32) -> Result<Self, String> {
        Err("this program is built without MPI; build it with cargo build --release --features mpi".to_owned())
    }

    /// The processes as a transport.
    pub fn transport(&self) -> &dyn Transport {
        match self.never {}
    }

    /// Ends all processes.
    pub fn abort(self, _exit: i32) {
        match self.never {}
    }
}
