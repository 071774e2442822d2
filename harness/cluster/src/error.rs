use std::path::{Path, PathBuf};

/// Why processes of a launch cannot work together.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Variables of a launcher that do not say which process this is.
    #[error("{0}")]
    Launch(String),
    /// The processes do not fit what they are to run.
    #[error("{0}")]
    Layout(String),
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted, e.g. "write".
        action: &'static str,
        /// File or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A folder that others may enter, or a file in it that is not what was written.
    #[error("{}: {what}", path.display())]
    Folder {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Some ranks have not come.
    #[error("{}: {} of {world} ranks have not come within {waited_s} s: {}; see the launcher's output of these ranks", path.display(), missing.len(), ranks_text(missing))]
    Missing {
        /// Where the others wait.
        path: PathBuf,
        /// Ranks that have not come.
        missing: Vec<u32>,
        /// Ranks of the launch.
        world: u32,
        /// Seconds that the others waited.
        waited_s: u64,
    },
    /// A rank that two processes claim to be.
    #[error("{}: two processes are rank {rank} of {world}: {first} and {second}; jobs that are to work apart need folders of their own", path.display())]
    Twice {
        /// File by which they met.
        path: PathBuf,
        /// The rank.
        rank: u32,
        /// Ranks of the launch.
        world: u32,
        /// The process that came first.
        first: String,
        /// The other.
        second: String,
    },
    /// This process was asked to stop while it waited for others.
    #[error("{}: interrupted while it waited for other ranks", path.display())]
    Interrupted {
        /// Where it waited.
        path: PathBuf,
    },
    /// This process could not show the others that it lives; they take over what it has claimed.
    #[error("{}: this process could not show for {silent_s} s that it lives ({what}); others may take over its cells, so it stops", path.display())]
    Silent {
        /// Its file.
        path: PathBuf,
        /// Since when.
        silent_s: u64,
        /// Why.
        what: String,
    },
}

impl ClusterError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    pub(crate) fn folder(path: &Path, what: impl ToString) -> Self {
        Self::Folder { path: path.to_owned(), what: what.to_string() }
    }

    /// True where a file or folder is not there any more: whoever ended the common work removed it.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Io { source, .. } if crate::files::gone(source))
    }
}

/// Ranks as text, with neighbours as ranges: `1, 4-6`.
fn ranks_text(ranks: &[u32]) -> String {
    let runs = ranks.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    let text = runs.filter_map(|run| match (run.first()?, run.last()?) {
        (first, last) if first == last => Some(format!("rank {first}")),
        (first, last) => Some(format!("ranks {first}-{last}")),
    });
    text.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::ranks_text;

    #[test]
    fn neighbours_are_ranges() {
        assert_eq!(ranks_text(&[1, 4, 5, 6, 9]), "rank 1, ranks 4-6, rank 9");
        assert_eq!(ranks_text(&[u32::MAX]), format!("rank {}", u32::MAX));
    }
}
