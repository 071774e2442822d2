//! Files of runs that were truncated, flipped, duplicated, swapped, emptied or removed: each is named, and nothing that is left is
//! taken for a result.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::{inputs, object, result, shared_bytes, work};
use rand::{RngExt, SeedableRng};
use serde_json::json;
use skewbench_store::{
    CellStatus, OpenOptions, Opened, Run, StoreError, Table, Timings, check, export, import, import_folder,
};

const CELLS: u32 = 7;

fn sealed(dir: &Path) {
    let (run, _) = Run::open(dir, &inputs(CELLS), OpenOptions::default()).unwrap();
    work(&run);
    run.seal().unwrap();
}

type Taken = (BTreeMap<String, Table>, Vec<(String, CellStatus)>);

/// All that a report could take from a run, or the first refusal.
fn taken(dir: &Path) -> Result<Taken, StoreError> {
    let run = Run::load(dir)?;
    let tables = run.kinds()?.into_iter().map(|kind| Ok((kind.clone(), run.table(&kind)?)));
    let tables = tables.collect::<Result<BTreeMap<_, _>, StoreError>>()?;
    Ok((tables, run.cells.into_iter().map(|cell| (cell.id.to_string(), cell.status)).collect()))
}

/// The problems that the check prints; an error of its own is one.
fn problems(dir: &Path) -> Vec<String> {
    check(dir).map_or_else(|e| vec![e.to_string()], |report| report.problems)
}

/// What may happen to a file, with its bytes afterwards.
fn damages(bytes: &[u8], other: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(bytes.len() as u64);
    let mut list = vec![
        ("emptied", Vec::new()),
        ("cut by one", bytes[..bytes.len() - 1].to_vec()),
        ("cut in half", bytes[..bytes.len() / 2].to_vec()),
        ("doubled", [bytes, bytes].concat()),
        ("lengthened", [bytes, b"\0"].concat()),
        ("zeroed", vec![0; bytes.len()]),
        ("swapped", other.to_vec()),
    ];
    for _ in 0..24 {
        let mut flipped = bytes.to_vec();
        let at = random.random_range(0..flipped.len());
        flipped[at] ^= 1 << random.random_range(0..8);
        list.push(("flipped", flipped));
    }
    list
}

#[test]
fn damaged_files_of_a_sealed_run_are_named_and_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    sealed(&dir);
    let files = ["samples.parquet", "waves.parquet", "cells.json", "failures.json"];
    for (i, name) in files.iter().enumerate() {
        let path = dir.join(name);
        let whole = fs::read(&path).unwrap();
        let other = fs::read(dir.join(files[(i + 1) % files.len()])).unwrap();
        for (what, bytes) in damages(&whole, &other) {
            fs::write(&path, bytes).unwrap();
            let found = problems(&dir);
            assert!(found.iter().any(|p| p.contains(name)), "{name} {what}: {found:?}");
            let error = taken(&dir).unwrap_err().to_string();
            assert!(error.contains(name), "{name} {what}: {error}");
        }
        fs::remove_file(&path).unwrap();
        assert!(problems(&dir).iter().any(|p| p.contains(name)));
        assert!(taken(&dir).is_err());
        fs::write(&path, whole).unwrap();
    }
    assert_eq!(problems(&dir), Vec::<String>::new());
}

#[test]
fn a_changed_manifest_gives_no_other_results() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    sealed(&dir);
    let before = taken(&dir).unwrap();
    let manifest = Run::load(&dir).unwrap().manifest;
    for name in ["manifest.json", "checksums.json"] {
        let path = dir.join(name);
        let whole = fs::read(&path).unwrap();
        let mut refused = 0;
        for bit in (0..whole.len()).map(|byte| byte * 8 + byte % 8) {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, flipped).unwrap();
            match taken(&dir) {
                Err(_) => refused += 1,
                // What is left says who ran it where, or is a count that the check compares.
                Ok(after) => {
                    let now = Run::load(&dir).unwrap().manifest;
                    let same = (&now.experiment, &now.inputs, &now.seeds)
                        == (&manifest.experiment, &manifest.inputs, &manifest.seeds);
                    assert!(same && after == before, "{name}: bit {bit}");
                }
            }
        }
        assert!(refused > whole.len() / 4, "{name}: {refused} of {} flips", whole.len());
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        assert!(taken(&dir).unwrap_err().to_string().contains(name));
        assert!(problems(&dir).iter().any(|p| p.contains(name)));
        fs::write(&path, whole).unwrap();
    }
}

#[test]
fn copies_of_files_are_named_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    sealed(&dir);
    let before = taken(&dir).unwrap();
    for copy in ["samples (1).parquet", "samples2.parquet", "samples.parquet.bak", "\u{1b}[2Jsamples.parquet"] {
        fs::copy(dir.join("samples.parquet"), dir.join(copy)).unwrap();
        let named = copy.escape_debug().to_string();
        for found in [problems(&dir), Run::load(&dir).unwrap().damage().unwrap()] {
            assert!(found.iter().any(|p| p.starts_with(&named)), "{copy}: {found:?}");
            assert!(!found.iter().any(|p| p.contains('\u{1b}')), "{found:?}");
        }
        assert_eq!(taken(&dir).unwrap(), before, "{copy}");
        fs::remove_file(dir.join(copy)).unwrap();
    }
    assert_eq!(Run::load(&dir).unwrap().damage().unwrap(), Vec::<String>::new());
}

/// Replaces a table of a sealed run as someone would who also mends the checksum.
fn replace_table(dir: &Path, table: &Table) {
    let path = dir.join("samples.parquet");
    table.save_parquet(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let sums = dir.join("checksums.json");
    let mut value: serde_json::Value = serde_json::from_slice(&fs::read(&sums).unwrap()).unwrap();
    value["samples.parquet"] = json!({ "blake3": blake3::hash(&bytes).to_hex().as_str(), "bytes": bytes.len() });
    fs::write(sums, serde_json::to_vec(&value).unwrap()).unwrap();
}

#[test]
fn rows_that_were_duplicated_or_moved_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    sealed(&dir);
    let table = Run::load(&dir).unwrap().table("samples").unwrap();
    let cells = table.str("cell").unwrap();
    let first = cells.iter().take_while(|id| Some(*id) == cells.get(0)).count();
    let rows = table.rows();
    let says = |table: &Table, what: &str| {
        replace_table(&dir, table);
        let found = problems(&dir);
        assert!(found.iter().any(|p| p.starts_with("samples: ") && p.contains(what)), "{what}: {found:?}");
    };
    let id = cells.get(0).unwrap();
    let again: Vec<usize> = (0..rows).chain(0..first).collect();
    says(&table.select(&again), &format!("rows of cell {id} stand twice or out of order, from row {rows}"));
    let moved: Vec<usize> = (first..rows).chain(0..first).collect();
    says(&table.select(&moved), "out of order");
    let shuffled: Vec<usize> = (0..rows).map(|i| i * 31 % rows).collect();
    says(&table.select(&shuffled), "and more of the kind");
    replace_table(&dir, &table);
    assert_eq!(problems(&dir), Vec::<String>::new());
}

/// A run under way, all of whose cells have a file.
fn unsealed(dir: &Path) -> Vec<PathBuf> {
    let inputs = inputs(CELLS);
    let (run, _) = Run::open(dir, &inputs, OpenOptions::default()).unwrap();
    inputs.cells.iter().for_each(|c| run.finish_cell(&c.id, result(&c.id), Timings::new()).unwrap());
    inputs.cells.iter().map(|c| dir.join(format!("cells/{}.cell", c.id))).collect()
}

#[test]
fn damaged_files_of_cells_are_named_and_computed_again() {
    let folder = tempfile::tempdir().unwrap();
    let (whole_run, dir) = (folder.path().join("whole"), folder.path().join("run"));
    unsealed(&whole_run);
    Run::open(&whole_run, &inputs(CELLS), OpenOptions::default()).unwrap().0.seal().unwrap();
    let paths = unsealed(&dir);
    let (path, other) = (&paths[2], fs::read(&paths[3]).unwrap());
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let id = inputs(CELLS).cells[2].id.clone();
    let whole = fs::read(path).unwrap();
    for (what, bytes) in damages(&whole, &other) {
        fs::write(path, bytes).unwrap();
        let run = Run::load(&dir).unwrap();
        assert_eq!(run.cells[2].status, CellStatus::Missing, "{what}");
        assert!(!run.table("samples").unwrap().str("cell").unwrap().iter().any(|cell| cell == id.as_str()), "{what}");
        for found in [problems(&dir), run.damage().unwrap()] {
            let named: Vec<&String> = found.iter().filter(|p| p.starts_with(&format!("cells/{name} "))).collect();
            assert_eq!(named.len(), 1, "{what}: {found:?}");
        }
        // Whoever goes on is told, computes the cell again, and merges the same bytes.
        let (run, opened) = Run::open(&dir, &inputs(CELLS), OpenOptions::default()).unwrap();
        assert_eq!(opened, Opened::Resumed { finished: CELLS as usize - 1 }, "{what}");
        assert!(
            matches!(run.damaged_cells().as_slice(), [one] if one.contains(&name)),
            "{what}: {:?}",
            run.damaged_cells()
        );
        run.finish_cell(&id, result(&id), Timings::new()).unwrap();
    }
    let (run, _) = Run::open(&dir, &inputs(CELLS), OpenOptions::default()).unwrap();
    assert!(run.damaged_cells().is_empty());
    run.seal().unwrap();
    assert_eq!(shared_bytes(&whole_run), shared_bytes(&dir));
}

#[test]
fn merging_names_a_file_that_was_torn_after_it_was_found_whole() {
    let folder = tempfile::tempdir().unwrap();
    let paths = unsealed(folder.path());
    let (run, _) = Run::open(folder.path(), &inputs(CELLS), OpenOptions::default()).unwrap();
    let bytes = fs::read(&paths[4]).unwrap();
    fs::write(&paths[4], &bytes[..bytes.len() - 9]).unwrap();
    let error = run.seal().unwrap_err().to_string();
    assert!(error.contains(&paths[4].display().to_string()) && error.contains("checksum"), "{error}");
    assert!(!folder.path().join("samples.parquet").exists() && !folder.path().join("checksums.json").exists());
}

#[test]
fn folders_of_colleagues_are_copied_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, archive) = (folder.path().join("run"), folder.path().join("run.tar.zst"));
    sealed(&dir);
    export(&dir, &archive).unwrap();
    assert!(import_folder(&dir, &folder.path().join("new/a")).unwrap().is_sound());
    assert!(import(&archive, &folder.path().join("new/b")).unwrap().is_sound());
    assert_eq!(shared_bytes(&folder.path().join("new/a")), shared_bytes(&folder.path().join("new/b")));
    assert!(matches!(import_folder(&dir, &folder.path().join("new/a")), Err(StoreError::Exists { .. })));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        for name in ["new", "new/a", "new/b"] {
            let mode = fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{name}");
        }
    }
}

#[cfg(unix)]
#[test]
fn hostile_folders_are_refused() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "content").unwrap();
    let refused = |change: &dyn Fn(&Path), what: &str| {
        let (dir, dest) = (folder.path().join("run"), folder.path().join("dest"));
        sealed(&dir);
        change(&dir);
        let error = import_folder(&dir, &dest).unwrap_err().to_string();
        assert!(error.contains(what), "{what}: {error}");
        assert!(!dest.exists(), "{what}");
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{what}: something is left behind");
    };
    let link = |from: &Path, to: &Path| {
        let _ = fs::remove_file(to);
        symlink(from, to).unwrap();
    };
    refused(&|dir| link(&secret, &dir.join("timings.json")), "not a plain file");
    refused(&|dir| link(&secret, &dir.join("more.txt")), "not a plain file");
    refused(&|dir| link(Path::new("manifest.json"), &dir.join("again.json")), "not a plain file");
    refused(&|dir| fs::create_dir_all(dir.join("cells/more")).unwrap(), "not a plain file");
    refused(&|dir| fs::create_dir(dir.join("more")).unwrap(), "not a plain file");
    refused(&|dir| drop(std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap()), "not a plain file");
    refused(&|dir| fs::write(dir.join("a b"), "x").unwrap(), "plain file name");
    refused(&|dir| fs::write(dir.join(".hidden"), "x").unwrap(), "plain file name");
    refused(&|dir| fs::write(dir.join("notes.txt"), "x").unwrap(), "not part of the run");
    refused(&|dir| fs::remove_file(dir.join("manifest.json")).unwrap(), "no run of this version");
    refused(&|dir| fs::write(dir.join("samples.parquet"), "x").unwrap(), "not the file that was sealed");
    refused(
        &|dir| {
            let file = fs::File::create(dir.join("huge.parquet")).unwrap();
            // A file with a hole: it takes no room, and is refused before it is copied.
            file.set_len(1 << 40).unwrap();
        },
        "bytes",
    );
    refused(&|dir| (0..1100).for_each(|i| fs::write(dir.join(format!("f{i}")), "x").unwrap()), "files");
}

#[test]
fn cells_of_the_same_inputs_are_refused_whatever_they_are_called() {
    let folder = tempfile::tempdir().unwrap();
    let mut twice = inputs(3);
    let mut copy = twice.cells[0].clone();
    copy.coordinates = object(json!({ "dp": "another" }));
    twice.cells.push(copy);
    assert!(matches!(Run::open(folder.path(), &twice, OpenOptions::default()), Err(StoreError::Plan(_))));
}
