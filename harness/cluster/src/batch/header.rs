use super::BatchError;
use super::render::DIRECTIVE;

/// Largest header.
const MOST_BYTES: usize = 64 << 10;

/// What a site wants in front of every batch script: directives, then commands such as those that load modules. It is the
/// user's own text and goes into the script as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub(super) directives: Vec<String>,
    pub(super) commands: Vec<String>,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// What no script may hold, another shell than bash or sh, and directives that Slurm would not read.
    pub fn parse(text: &str) -> Result<Self, BatchError> {
        let wrong = |line: usize, what: &str| Err(BatchError::Header { line, what: what.to_owned() });
        if text.len() > MOST_BYTES {
            return wrong(1, "the file has more than 64 KiB");
        }
        let mut header = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            if line.chars().any(|c| c.is_control() && c != '\t') {
                return wrong(number, "holds a control character");
            }
            if let Some(shell) = line.strip_prefix("#!") {
                let known = ["/bin/bash", "/usr/bin/bash", "/bin/sh", "/usr/bin/env bash"];
                if number > 1 || !known.contains(&shell.trim()) {
                    return wrong(number, "the script is one of bash; leave the line out");
                }
            } else if line.starts_with(DIRECTIVE) {
                if header.commands.iter().any(|line| !line.trim().is_empty() && !line.starts_with('#')) {
                    return wrong(number, "Slurm reads no directive after the first command; move it up");
                }
                header.directives.push(line.to_owned());
            } else {
                header.commands.push(line.to_owned());
            }
        }
        Ok(header)
    }
}
