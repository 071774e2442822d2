//! Names, paths, manifests, and what a run remembers.

use serde_json::{Map, json};
use skewbench_external::Catalogue;

use crate::{ANSWER, HELLO, Lab, contains, plan};

#[test]
fn names_pairs_and_paths() {
    let lab = Lab::serving(HELLO, ANSWER);
    let elsewhere = Catalogue::at("no-such-folder");
    let path = lab.folder.path().join("script.toml").display().to_string();
    assert_eq!(elsewhere.admit(&path).unwrap(), "script");
    assert_eq!(elsewhere.admit(&format!("{path}+vrsp")).unwrap(), "script+vrsp");
    assert_eq!(elsewhere.admit("script+sorted").unwrap(), "script+sorted");
    let message = elsewhere.admit(&format!("ulysses+{path}")).unwrap_err().to_string();
    contains(&message, &["does not place", "script+vrsp"]);
    assert_eq!(elsewhere.admit("libra").unwrap(), "libra");
    assert!(elsewhere.keys("libra").is_empty() && elsewhere.keys("script").len() == 1);
    let other = Lab::serving(HELLO, "exit 1");
    let message =
        elsewhere.admit(&other.folder.path().join("script.toml").display().to_string()).unwrap_err().to_string();
    contains(&message, &["another manifest of the name script"]);
    let message = lab.catalogue().admit("scrip").unwrap_err().to_string();
    contains(&message, &["unknown system scrip", "did you mean script?", "libra"]);

    // What a run recorded is described without the program, and not run.
    let records: Vec<_> = elsewhere.records("script");
    let recorded = Catalogue::recorded(serde_json::from_value(json!(records)).unwrap()).unwrap();
    assert_eq!(recorded.admit(&path).unwrap(), "script");
    assert_eq!(recorded.describe("script").unwrap().source, elsewhere.describe("script").unwrap().source);
    assert_eq!(recorded.keys("script"), elsewhere.keys("script"));
    let message = plan(&recorded.system("script", &Map::new(), 0).unwrap(), &[&[5, 3]], 2).unwrap_err().to_string();
    contains(&message, &["results of a run can be read without it"]);
}

#[test]
fn a_changed_program_has_another_key() {
    let lab = Lab::serving(HELLO, ANSWER);
    lab.write("table.txt", "1");
    lab.manifest("files = [\"table.txt\"]\n");
    let key = || lab.catalogue().keys("script").remove(0);
    let first = key();
    assert_eq!((first.name.as_str(), first.version.as_deref(), key()), ("script", Some("1"), first.clone()));
    lab.write("table.txt", "2");
    let second = key();
    lab.manifest("files = [\"table.txt\"]\ntimeout_s = 3\n");
    let third = key();
    let script = std::fs::read_to_string(lab.folder.path().join("script.sh")).unwrap();
    lab.write("script.sh", &format!("{script}\n# more\n"));
    let keys = [first, second, third, key()].map(|k| k.fingerprint);
    assert!((0..4).all(|i| !keys[..i].contains(&keys[i])), "{keys:?}");
}

#[test]
fn manifests_that_cannot_be_used() {
    let lab = Lab::serving(HELLO, ANSWER);
    for (text, part) in [
        ("name = \"other\"\ncommand = [\"x\"]\n", "name is \"other\"; it must be that of the file, \"script\""),
        ("name = \"script\"\ncommand = []\n", "command is empty"),
        ("name = \"script\"\ncommand = \"sh script.sh\"\n", "script.toml:2"),
        ("name = \"script\"\ncommand = [\"x\"]\ntimeout_s = 0\n", "timeout_s = 0"),
        ("name = \"script\"\ncommand = [\"x\"]\ntimeout_s = nan\n", "timeout_s = NaN"),
        ("name = \"script\"\ncommand = [\"x\"]\ntimeouts = 1\n", "did you mean `timeout_s`?"),
        ("name = \"script\"\ncommand = [\"x\"]\nfiles = [\"gone\"]\n", "names gone, which is no file"),
        ("", "is empty"),
    ] {
        lab.write("script.toml", text);
        let message = lab.catalogue().admit("script").unwrap_err().to_string();
        contains(&message, &["script.toml", part]);
        assert_eq!(lab.catalogue().listed()[0].name, "script");
    }
    lab.write("libra.toml", "name = \"libra\"\ncommand = [\"x\"]\n");
    let path = lab.folder.path().join("libra.toml").display().to_string();
    contains(&lab.catalogue().admit(&path).unwrap_err().to_string(), &["that of a built-in system"]);
}
