use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::{Published, Validation};
use crate::failure::Failure;

include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

/// The files of one folder, by name, wherever they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shipped {
    /// Folder, for errors.
    pub folder: PathBuf,
    /// Name and text of every file.
    pub files: Vec<(String, String)>,
}

impl Shipped {
    /// The files of a folder on disk that a binary would embed.
    ///
    /// # Errors
    /// A folder or file that cannot be read.
    pub fn read(folder: &Path) -> Result<Self, Failure> {
        let fail = |path: &Path, e: std::io::Error| Failure::config(format!("read {}: {e}", path.display()));
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(|e| fail(folder, e))? {
            let path = entry.map_err(|e| fail(folder, e))?.path();
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            if path.is_file() && (name.ends_with(".csv") || name.ends_with(".toml")) {
                files.push((name, std::fs::read_to_string(&path).map_err(|e| fail(&path, e))?));
            }
        }
        files.sort();
        Ok(Self { folder: folder.to_owned(), files })
    }

    /// Name of the folder.
    pub fn name(&self) -> String {
        self.folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Refuses files that nobody reads.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Failure> {
        match self.files.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            Some((name, _)) => Err(self.error(name, format!("is none of {}", known.join(", ")))),
            None => Ok(()),
        }
    }

    /// A TOML file, read strictly.
    pub(super) fn toml<T: DeserializeOwned>(&self, name: &str) -> Result<T, Failure> {
        let text = self.text(name).ok_or_else(|| self.error(name, "is missing"))?;
        skewbench_store::parse_strict(text, &self.folder.join(name).display().to_string()).map_err(Failure::config)
    }

    /// The rows of a CSV file whose header names exactly the fields of `T`; `problem` says what is wrong with a row that
    /// can be read. None where there is no such file.
    pub(super) fn rows<T: DeserializeOwned>(
        &self,
        name: &str,
        problem: impl Fn(&T) -> Option<String>,
    ) -> Result<Vec<T>, Failure> {
        let Some(text) = self.text(name) else { return Ok(Vec::new()) };
        let mut rows = Vec::new();
        for row in csv::Reader::from_reader(text.as_bytes()).into_deserialize() {
            let row: T = row.map_err(|e| self.error(name, e))?;
            if let Some(what) = problem(&row) {
                return Err(self.at(name, rows.len(), what));
            }
            rows.push(row);
        }
        if rows.is_empty() {
            return Err(self.error(name, "has no rows; leave the file out where nothing was measured"));
        }
        Ok(rows)
    }

    /// An error about a file.
    pub(super) fn error(&self, name: &str, what: impl std::fmt::Display) -> Failure {
        Failure::config(format!("{}: {what}", self.folder.join(name).display()))
    }

    /// An error about a line of a CSV file, by its row from 0.
    pub(super) fn at(&self, name: &str, row: usize, what: impl std::fmt::Display) -> Failure {
        self.error(name, format!("line {}: {what}", row + 2))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.files.iter().find(|(n, _)| n == name).map(|(_, text)| text.as_str())
    }
}

/// Folders among embedded files, in the order of their names.
fn folders(parent: &str, embedded: &[(&str, &str)]) -> Vec<Shipped> {
    let mut folders: Vec<Shipped> = Vec::new();
    for (path, text) in embedded {
        let Some((folder, name)) = path.split_once('/') else { continue };
        let folder = Path::new("results").join(parent).join(folder);
        if folders.last().is_none_or(|f| f.folder != folder) {
            folders.push(Shipped { folder, files: Vec::new() });
        }
        if let Some(last) = folders.last_mut() {
            last.files.push((name.to_owned(), (*text).to_owned()));
        }
    }
    folders
}

/// What ships for a profile; none where it was not validated.
///
/// # Errors
/// File, line and what is wrong with it.
pub fn validation_of(profile: &str) -> Result<Option<Validation>, Failure> {
    let mut shipped = folders("validation", VALIDATION).into_iter();
    shipped.find(|folder| folder.name() == profile).map(|folder| Validation::parse(&folder)).transpose()
}

/// All published runs, in the order of their names.
///
/// # Errors
/// File, line and what is wrong with it.
pub fn published() -> Result<Vec<Published>, Failure> {
    folders("published", PUBLISHED).iter().map(Published::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::{VALIDATION, folders, published, validation_of};

    #[test]
    fn what_ships_can_be_read() {
        published().unwrap();
        for folder in folders("validation", VALIDATION) {
            assert!(validation_of(&folder.name()).unwrap().is_some());
        }
        assert_eq!(validation_of("no-such-profile").unwrap(), None);
    }

    #[test]
    fn files_of_a_folder_stay_together() {
        let files = [("a/x.csv", "1"), ("a/y.csv", "2"), ("b/x.csv", "3")];
        let folders = folders("published", &files);
        assert_eq!(folders.iter().map(|f| f.files.len()).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(folders[1].name(), "b");
    }
}
