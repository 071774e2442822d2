use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Launch;

/// A card of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Card {
    /// The driver's number for it on its node.
    pub minor: u32,
    /// Its address on the PCI bus.
    pub pci: String,
}

/// Where a rank runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The rank.
    pub rank: u32,
    /// Its node.
    pub host: String,
    /// Its number on the node.
    pub local_rank: u32,
    /// Its process.
    pub pid: u32,
    /// Cards that it may use.
    pub cards: Vec<Card>,
}

impl Placement {
    /// Where this process runs. `visible` is the value of `CUDA_VISIBLE_DEVICES`, if set.
    pub fn current(launch: &Launch, visible: Option<&str>) -> Self {
        let cards = seen(cards(Path::new("/proc/driver/nvidia/gpus")), visible);
        Self {
            rank: launch.rank,
            host: launch.host.clone(),
            local_rank: launch.local_rank,
            pid: std::process::id(),
            cards,
        }
    }
}

/// Cards of this node, by the driver's own files, in the order of its numbers.
fn cards(folder: &Path) -> Vec<Card> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut cards: Vec<Card> = entries
        .filter_map(|entry| {
            let about = fs::read_to_string(entry.path().join("information")).ok()?;
            let field =
                |name: &str| about.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
            let minor = field("Device Minor")?.trim().parse().ok()?;
            Some(Card { minor, pci: entry.file_name().to_string_lossy().into_owned() })
        })
        .collect();
    cards.sort_unstable();
    cards
}

/// The cards that a process sees, in its order. A list of other names than numbers hides nothing: what they stand for is not
/// in the driver's files.
fn seen(cards: Vec<Card>, visible: Option<&str>) -> Vec<Card> {
    let numbers =
        visible.map(|list| list.split(',').map(|part| part.trim().parse::<u32>()).collect::<Result<Vec<_>, _>>());
    let Some(Ok(numbers)) = numbers else { return cards };
    numbers.iter().filter_map(|number| cards.get(*number as usize).cloned()).collect()
}

/// One line a rank for people.
pub fn placements_text(placements: &[Placement]) -> String {
    let line = |p: &Placement| {
        let cards = match p.cards.as_slice() {
            [] => "no card".to_owned(),
            cards => cards.iter().map(|c| format!("card {} at {}", c.minor, c.pci)).collect::<Vec<_>>().join(", "),
        };
        format!("rank {}: {}, process {}, {cards}", p.rank, p.host, p.pid)
    };
    placements.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_read_from_the_drivers_files() {
        let dir = tempfile::tempdir().expect("a folder");
        for (pci, minor) in [("0000:5d:00.0", "10"), ("0000:19:00.0", "2")] {
            fs::create_dir(dir.path().join(pci)).expect("made");
            let text = format!("Model: \t\t NVIDIA H200\nDevice Minor: \t {minor}\nBus Location: {pci}\n");
            fs::write(dir.path().join(pci).join("information"), text).expect("written");
        }
        fs::write(dir.path().join("other"), "").expect("written");
        let found = cards(dir.path());
        assert_eq!(
            found.iter().map(|c| (c.minor, c.pci.as_str())).collect::<Vec<_>>(),
            [(2, "0000:19:00.0"), (10, "0000:5d:00.0")]
        );
        assert!(cards(Path::new("/nowhere")).is_empty());
        let minors = |visible| seen(found.clone(), visible).iter().map(|card| card.minor).collect::<Vec<_>>();
        assert_eq!(
            [minors(None), minors(Some("1, 0")), minors(Some("1")), minors(Some("7"))],
            [vec![2, 10], vec![10, 2], vec![10], vec![]]
        );
        assert_eq!(minors(Some("GPU-1234")), [2, 10]);
        let mut placement = Placement::current(&Launch::alone("n1"), None);
        (placement.pid, placement.cards) = (7, found);
        assert_eq!(
            placements_text(&[placement]),
            "rank 0: n1, process 7, card 2 at 0000:19:00.0, card 10 at 0000:5d:00.0"
        );
    }
}
