use std::time::Duration;

/// Carries messages between the processes of a group. Every process calls the same functions of [`Processes`](super::Processes)
/// in the same order.
pub trait Transport: Send + Sync {
    /// Number of this process.
    fn process(&self) -> u32;

    /// Processes of the group.
    fn processes(&self) -> u32;

    /// A process for people: which it is, and where it runs if that is known.
    fn name(&self, process: u32) -> String {
        format!("process {process}")
    }

    /// Sends a message; those from one process to another arrive in order. Callable from many threads.
    ///
    /// # Errors
    /// Why it cannot be sent.
    fn send(&self, to: u32, message: &[u8]) -> Result<(), String>;

    /// The next message for this process; none when there is none within `patience`. Called by one thread at a time.
    ///
    /// # Errors
    /// Why no message can come any more.
    fn receive(&self, patience: Duration) -> Result<Option<Vec<u8>>, String>;
}
