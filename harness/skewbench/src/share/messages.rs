use skewbench_cpu::Transport;

/// What carries messages between the processes of a launch, from when it is initialised until it is dropped.
pub trait Messages: Sync {
    /// The processes as a transport.
    fn transport(&self) -> &dyn Transport;

    /// Ends all processes at once with an exit code, since this one cannot go on and the others would wait for it.
    fn abort(&self, exit: i32) -> !;
}

/// Connects this process with the others of its launch. `about` says where it runs; `exit` is the exit code of the launch where a
/// process is gone.
///
/// # Errors
/// Why it cannot.
pub type Connect = fn(about: &str, exit: i32) -> Result<Box<dyn Messages>, String>;
