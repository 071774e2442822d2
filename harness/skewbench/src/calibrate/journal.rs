use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use skewbench_cuda::CardInfo;

use crate::failure::Failure;

/// Times of a point, or why there are none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Name of the point's row.
    pub point: String,
    /// Times that count, nanoseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ns: Vec<f64>,
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// First line: on what the points were measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    schema: u32,
    seed: u64,
    /// Of the program, where another one's points would not do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
    card: CardInfo,
}

/// Points that have been measured, a line each, on disk before the next is begun.
pub struct Journal {
    path: PathBuf,
    file: File,
    entries: BTreeMap<String, Entry>,
}

impl Journal {
    /// Opens the file of a card's points, new, or to go on with; with a `revision`, only that of the same one.
    ///
    /// # Errors
    /// A file that is there without `resume`, that another card, seed or revision of the program wrote, or that cannot be used.
    pub fn open(
        path: &Path,
        card: &CardInfo,
        seed: u64,
        revision: Option<&str>,
        resume: bool,
    ) -> Result<Self, Failure> {
        let failed = |e: std::io::Error| Failure::config(format!("{}: {e}", path.display()));
        let refuse = |what: &str| Err(Failure::config(format!("{}: {what}", path.display())));
        let header = Header { schema: 1, seed, revision: revision.map(str::to_owned), card: card.clone() };
        let mut entries = BTreeMap::new();
        let text = match std::fs::read_to_string(path) {
            Ok(_) if !resume => {
                return refuse("holds measured points already; go on with --resume, or choose another --out");
            }
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(failed(e)),
        };
        // A line that was being written when the process ended has no end.
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        for (number, line) in whole.lines().enumerate() {
            let bad = |e: serde_json::Error| Failure::config(format!("{}:{}: {e}", path.display(), number + 1));
            if number == 0 {
                let found: Header = serde_json::from_str(line).map_err(bad)?;
                if !same_machine(&found, &header) {
                    return refuse(
                        "was measured on another card, driver or library, by another revision of skewbench or with another seed; choose another --out",
                    );
                }
            } else {
                let entry: Entry = serde_json::from_str(line).map_err(bad)?;
                entries.insert(entry.point.clone(), entry);
            }
        }
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path).map_err(failed)?;
        file.set_len(whole.len() as u64).map_err(failed)?;
        if whole.is_empty() {
            write_line(&mut file, &header).map_err(failed)?;
        }
        Ok(Self { path: path.to_owned(), file, entries })
    }

    /// A point's entry.
    pub fn get(&self, point: &str) -> Option<&Entry> {
        self.entries.get(point)
    }

    /// Adds an entry and waits until it is on disk.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&mut self, entry: Entry) -> Result<(), Failure> {
        write_line(&mut self.file, &entry).map_err(|e| Failure::config(format!("{}: {e}", self.path.display())))?;
        self.entries.insert(entry.point.clone(), entry);
        Ok(())
    }
}

/// Clocks change from moment to moment; all else must be the same.
fn same_machine(a: &Header, b: &Header) -> bool {
    let fixed = |h: &Header| Header {
        card: CardInfo { sm_clock_mhz: None, memory_clock_mhz: None, ordinal: 0, ..h.card.clone() },
        ..h.clone()
    };
    fixed(a) == fixed(b)
}

fn write_line(file: &mut File, value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    file.write_all(line.as_bytes())?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use skewbench_cuda::CardInfo;

    use super::{Entry, Journal};

    fn entry(point: &str) -> Entry {
        Entry { point: point.into(), ns: vec![1.5, 2.5], failed: None }
    }

    #[test]
    fn points_survive_and_half_a_line_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("points.jsonl");
        let card = CardInfo { name: "a card".into(), sm_clock_mhz: Some(100), ..CardInfo::default() };
        let mut journal = Journal::open(&path, &card, 1, Some("r"), false).expect("new");
        journal.add(entry("one")).expect("written");
        drop(journal);
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).expect("there");
        file.write_all(b"{\"point\":\"tw").expect("written");
        assert!(Journal::open(&path, &card, 1, Some("r"), false).is_err());
        let other_clock = CardInfo { sm_clock_mhz: Some(200), ..card.clone() };
        let mut journal = Journal::open(&path, &other_clock, 1, Some("r"), true).expect("resumes");
        assert_eq!((journal.get("one"), journal.get("two")), (Some(&entry("one")), None));
        journal.add(entry("two")).expect("written");
        drop(journal);
        assert!(Journal::open(&path, &card, 1, Some("r"), true).expect("resumes").get("two").is_some());
        assert!(Journal::open(&path, &card, 2, Some("r"), true).is_err());
        assert!(Journal::open(&path, &card, 1, Some("s"), true).is_err());
        assert!(Journal::open(&path, &CardInfo { name: "other".into(), ..card }, 1, Some("r"), true).is_err());
    }
}
