//! Values that go into a script. Each has a type of its own that holds nothing but characters which mean nothing to a shell, to
//! Slurm's reader of directives, or to a container runtime.

use std::fmt;
use std::str::FromStr;

use super::BatchError;

/// Longest name of a user's, a site's or Slurm's.
const LONGEST_NAME: usize = 64;
/// Longest path or image.
const LONGEST_PATH: usize = 1024;
/// Longest name of a network interface that Linux has, without its end.
const LONGEST_INTERFACE: usize = 15;

fn name_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-')
}

fn path_byte(b: u8) -> bool {
    name_byte(b) || matches!(b, b'/' | b'+' | b'@' | b':' | b',' | b'=' | b'%')
}

/// True for text of such bytes that begins like no option and like no path that a shell would look up (`=name`).
fn is_word(text: &str, longest: usize, byte: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.len() <= longest && !text.starts_with(['-', '=']) && text.bytes().all(byte)
}

fn is_name(text: &str) -> bool {
    is_word(text, LONGEST_NAME, name_byte)
}

macro_rules! checked {
    ($(#[$doc:meta])* $type:ident, $what:literal, $expected:expr, $accepts:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $type(String);

        impl FromStr for $type {
            type Err = BatchError;

            fn from_str(text: &str) -> Result<Self, BatchError> {
                let accepts: fn(&str) -> bool = $accepts;
                if accepts(text) { Ok(Self(text.to_owned())) } else { Err(BatchError::value($what, text, $expected)) }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

checked!(
    /// An account, a job's name, a quality of service.
    Name,
    "name",
    "letters, digits, '_', '.' and '-', at most 64, none of them first '-'",
    is_name
);

checked!(
    /// Partitions.
    Names,
    "list of names",
    "names of letters, digits, '_', '.' and '-', separated by commas",
    |text| text.split(',').count() <= 32 && text.split(',').all(is_name)
);

checked!(
    /// How long a job may run.
    TimeLimit,
    "time",
    "minutes, or MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS as sbatch takes them, above zero",
    is_time
);

checked!(
    /// Network interfaces for `NCCL_SOCKET_IFNAME`.
    Interfaces,
    "choice of network interfaces",
    "names or beginnings of names, separated by commas, after '=' for exact names or '^' for all but these",
    |text| {
        let names = text.strip_prefix("^=").or(text.strip_prefix(['=', '^'])).unwrap_or(text);
        names.split(',').count() <= 16 && names.split(',').all(|name| is_word(name, LONGEST_INTERFACE, name_byte))
    }
);

checked!(
    /// A container image: a file, or a name in a registry.
    Image,
    "container image",
    "a path or a name in a registry, of letters, digits and _.-/+@:,=%#, none of them first '-', '=' or '#'",
    |text| is_word(text, LONGEST_PATH, |b| path_byte(b) || b == b'#') && !text.starts_with('#')
);

checked!(
    /// A path without spaces or characters that a shell or a container runtime reads.
    Path,
    "path",
    "letters, digits and _.-/+@=% without spaces, none of them first '-' or '='",
    |text| is_word(text, LONGEST_PATH, |b| path_byte(b) && !matches!(b, b':' | b','))
);

/// `MM`, `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM` or `D-HH:MM:SS`.
fn is_time(text: &str) -> bool {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(days), rest),
        None => (None, text),
    };
    let parts: Vec<&str> = days.into_iter().chain(rest.split(':')).collect();
    let number = |part: &&str| (1..=5).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    parts.len() <= 3 + usize::from(days.is_some())
        && parts.iter().all(number)
        && parts.iter().any(|part| part.bytes().any(|b| b != b'0'))
}

/// A word as a POSIX shell must be given it to take it as it is.
pub fn shell_word(word: &str) -> String {
    if is_word(word, usize::MAX, path_byte) || (word.starts_with("--") && word.bytes().all(path_byte)) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
