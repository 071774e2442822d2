use crate::import::ImportError;

/// Why a workload cannot be made or streamed.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// No preset has this name.
    #[error("no workload is called {name:?}; {hint}")]
    UnknownPreset {
        /// The name that was asked for.
        name: String,
        /// The nearest preset, or all of them.
        hint: String,
    },
    /// The window is zero or too large.
    #[error("window = {0}; choose 1 to {max} tokens", max = crate::MAX_WINDOW)]
    Window(u64),
    /// The packing rule is unknown or has impossible parameters.
    #[error("packing {text:?}: {why}; choose ff, cut, split, or ff with options as in ff:open=32,top_up=1024")]
    Packing {
        /// What was written.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// A parameter of a length source is out of range.
    #[error("document lengths: {0}")]
    Source(String),
    /// A stream option is out of range.
    #[error("{option} = {value}: {why}")]
    Stream {
        /// Name of the option.
        option: &'static str,
        /// Its value.
        value: u64,
        /// Why it is refused and what is accepted.
        why: String,
    },
    /// A file could not be read.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// A data file that is built into the program could not be decoded.
    #[error("built-in data {file} cannot be decoded: {why}; this build is damaged, build it again")]
    BuiltIn {
        /// Name of the data file.
        file: &'static str,
        /// What the decoder said.
        why: String,
    },
}
