use std::path::Path;

use crate::error::WorkloadError;
use crate::import::{ReadOptions, is_known_suffix, read_lengths};
use crate::packing::Packing;
use crate::presets::preset;
use crate::source::LengthSource;

/// Largest window in tokens.
pub const MAX_WINDOW: u32 = 1 << 30;

/// Document lengths, a window and a rule that packs one into the other. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Workload {
    name: String,
    description: String,
    window: u32,
    packing: Packing,
    source: LengthSource,
}

/// True when a workload's name means a file: it has a path separator or the suffix of a format that can be read.
pub fn looks_like_file(name: &str) -> bool {
    name.contains(['/', '\\']) || is_known_suffix(Path::new(name))
}

impl Workload {
    /// A workload of any length source.
    ///
    /// # Errors
    /// The window is 0 or above [`MAX_WINDOW`].
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        source: LengthSource,
        window: u32,
        packing: Packing,
    ) -> Result<Self, WorkloadError> {
        if window == 0 || window > MAX_WINDOW {
            return Err(WorkloadError::Window(u64::from(window)));
        }
        Ok(Self { name: name.into(), description: description.into(), window, packing, source })
    }

    /// A preset at its own window and packing where none is given.
    ///
    /// # Errors
    /// No preset has this name, or the window is out of range.
    pub fn preset(name: &str, window: Option<u32>, packing: Option<Packing>) -> Result<Self, WorkloadError> {
        let preset = preset(name)?;
        let description = format!(
            "{}; {} ({}, {}), {}",
            preset.description,
            preset.source.system,
            preset.source.repository,
            preset.source.commit,
            preset.source.licence
        );
        let lengths = preset.lengths_of(name)?;
        let window = window.unwrap_or(preset.window);
        Self::new(name, description, lengths, window, packing.unwrap_or(preset.packing))
    }

    /// Lengths of a file in any format that [`read_lengths`] takes, drawn with replacement.
    ///
    /// # Errors
    /// The file cannot be read or holds a bad length, or the window is out of range.
    pub fn from_file(path: &Path, options: &ReadOptions, window: u32, packing: Packing) -> Result<Self, WorkloadError> {
        if window == 0 || window > MAX_WINDOW {
            return Err(WorkloadError::Window(u64::from(window)));
        }
        let lengths = read_lengths(path, options)?;
        let description = format!("{} documents of {}", lengths.len(), path.display());
        Self::new(path.display().to_string(), description, LengthSource::list(lengths)?, window, packing)
    }

    /// A preset, or a file where the name [looks like one](looks_like_file). A file has a window of 262144 tokens and
    /// first-fit packing where none is given.
    ///
    /// # Errors
    /// As [`Workload::preset`] and [`Workload::from_file`].
    pub fn open(name: &str, window: Option<u32>, packing: Option<Packing>) -> Result<Self, WorkloadError> {
        if looks_like_file(name) {
            let (window, packing) = (window.unwrap_or(262_144), packing.unwrap_or(Packing::FIRST_FIT));
            Self::from_file(Path::new(name), &ReadOptions::default(), window, packing)
        } else {
            Self::preset(name, window, packing)
        }
    }

    /// Name of the preset, or path of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One line about the documents and where they come from.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Tokens of a window.
    pub fn window(&self) -> u32 {
        self.window
    }

    /// Packing rule.
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// Document lengths.
    pub fn source(&self) -> &LengthSource {
        &self.source
    }

    /// Expected documents in a window.
    pub fn documents_per_window(&self) -> f64 {
        f64::from(self.window) / self.source.mean_tokens(self.window)
    }

    /// Hash, in hexadecimal, of everything that determines the windows apart from the seed: lengths (those of a
    /// user's file included), window, packing. The name is not part of it: equal data has equal prints.
    pub fn fingerprint(&self) -> String {
        let mut hash = blake3::Hasher::new_derive_key("skewbench workload v1");
        hash.update(&self.window.to_le_bytes());
        hash.update(self.packing.to_string().as_bytes());
        self.source.hash_into(&mut hash);
        hash.finalize().to_hex().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_follows_the_data() {
        let print = |name, window, packing| Workload::preset(name, window, packing).unwrap().fingerprint();
        let base = print("paper-256k", None, None);
        assert_eq!(base, print("paper-256k", Some(262_144), Some(Packing::FIRST_FIT)));
        assert_ne!(base, print("paper-1m", Some(262_144), None));
        assert_ne!(base, print("paper-256k", Some(262_145), None));
        assert_ne!(base, print("paper-256k", None, Some(Packing::Cut)));
        let of = |lengths| {
            let source = LengthSource::list(lengths).unwrap();
            Workload::new("a", "b", source, 64, Packing::Cut).unwrap().fingerprint()
        };
        assert_eq!(of(vec![1, 2]), of(vec![1, 2]));
        assert_ne!(of(vec![1, 2]), of(vec![2, 1]));
    }

    #[test]
    fn windows_out_of_range_are_refused() {
        for window in [0, MAX_WINDOW + 1] {
            assert!(matches!(Workload::preset("magi", Some(window), None), Err(WorkloadError::Window(_))));
        }
    }

    #[test]
    fn names_with_a_separator_or_suffix_are_files() {
        for name in ["./a", "a/b", "lengths.parquet", "x.JSONL", "a.npy", "a.csv", "a.txt"] {
            assert!(looks_like_file(name), "{name}");
        }
        for name in ["paper-256k", "magi", "v1.2"] {
            assert!(!looks_like_file(name), "{name}");
        }
        assert!(matches!(Workload::open("none.txt", None, None), Err(WorkloadError::Import(_))));
    }
}
