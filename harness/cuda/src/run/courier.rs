use std::time::Duration;

/// Carries small blobs between the processes of a launch on another way than files, as MPI does.
pub trait Courier: std::fmt::Debug + Send + Sync {
    /// Gives a blob to all other processes. A name is given once.
    ///
    /// # Errors
    /// Why it cannot.
    fn give(&self, name: &str, bytes: &[u8]) -> Result<(), String>;

    /// A blob of a name that a process has given; none where it has not come within `patience`.
    ///
    /// # Errors
    /// Why none can come any more.
    fn take(&self, name: &str, from: usize, patience: Duration) -> Result<Option<Vec<u8>>, String>;
}
