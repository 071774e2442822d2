//! Completions and the manual page, from the command line's own description.

use std::io::Write;

use crate::cli::command;
use crate::failure::Failure;

/// Prints completions for a shell.
///
/// # Errors
/// When standard output cannot be written.
pub fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "skewbench", &mut text);
    write(&text)
}

/// Prints the manual page.
///
/// # Errors
/// When standard output cannot be written.
pub fn man() -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command()).render(&mut text).map_err(Failure::internal)?;
    write(&text)
}

fn write(text: &[u8]) -> Result<(), Failure> {
    match std::io::stdout().write_all(text) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::config(format!("standard output: {e}"))),
        _ => Ok(()),
    }
}
