//! docs/TUTORIAL.md does what it says: its own commands, in order, on smaller numbers.
#![cfg(unix)]

use std::path::Path;
use std::process::Command;

use crate::common::{Lab, differing, repository};

/// What makes the study small; all of it stands in the document.
const SMALLER: [(&str, &str); 7] = [
    ("131072", "8192"),
    ("--gbs 32", "--gbs 8"),
    ("--steps 100", "--steps 20"),
    ("gbs = 32", "gbs = 8"),
    ("steps = 20", "steps = 5"),
    ("dp = 4, cp = 8", "dp = 2, cp = 2, cards_per_node = 2"),
    ("recommend study.toml", "recommend study.toml --steps 5"),
];

/// Blocks of a document in a language, in order.
fn blocks(text: &str, wanted: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => open = Some((language.to_owned(), String::new())),
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some((_, block)), None) => *block += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    found.retain(|(language, _)| wanted.contains(&language.as_str()));
    found
}

#[test]
fn every_command_of_the_tutorial_runs() {
    let mut text = repository("docs/TUTORIAL.md");
    for (large, small) in SMALLER {
        assert!(text.contains(large), "docs/TUTORIAL.md has no longer: {large}");
        text = text.replace(large, small);
    }
    let lab = Lab::new();
    let program = Path::new(env!("CARGO_BIN_EXE_skewbench"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap_or_default());
    let mut commands = 0;
    let mut printed = String::new();
    for (language, block) in blocks(&text, &["sh", "toml"]) {
        if language == "toml" {
            let name = block.lines().next().and_then(|line| line.strip_prefix("# ")).expect("a block names its file");
            assert!(block.lines().filter(|line| !line.is_empty()).count() <= 21, "the study is longer than 20 lines");
            lab.write(name, &block);
            continue;
        }
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", &block]).env("PATH", &path).current_dir(lab.path(""));
        let output = shell.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{block}{said}{}", String::from_utf8_lossy(&output.stderr));
        commands += block.lines().count();
        printed += &said;
    }
    assert_eq!(commands, 11);
    assert!(printed.contains("CV of x") && printed.contains("is fastest") && printed.contains("sound"), "{printed}");
    assert_eq!(differing(&lab.shared_bytes("study"), &lab.shared_bytes("colleague")), [""; 0]);
    for page in ["study/index.html", "study/study.html", "study/data/study.pdf", "advice/recommend.html"] {
        assert!(lab.exists(page), "{page}");
    }
}
