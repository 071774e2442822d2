//! Life of a run folder: fresh, interrupted, damaged, resumed, sealed, refused, replaced, archived.

mod common;

use std::fs;
use std::path::Path;

use common::{inputs, result, shared_bytes, work};
use serde_json::json;
use skewbench_store::{
    CellStatus, OpenOptions, Opened, Run, RunInputs, RunStatus, StoreError, Timings, check, export, import,
};

const PLAIN: OpenOptions = OpenOptions { replace_other: false, retry_failed: false };

fn complete(dir: &Path, inputs: &RunInputs) {
    let (run, _) = Run::open(dir, inputs, PLAIN).unwrap();
    work(&run);
    run.seal().unwrap();
}

#[test]
fn a_run_is_written_sealed_and_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("a/run");
    let inputs = inputs(12);
    let (run, opened) = Run::open(&dir, &inputs, PLAIN).unwrap();
    assert_eq!(opened, Opened::Fresh);
    assert_eq!(run.pending().len(), 12);
    work(&run);
    let unsealed = Run::load(&dir).unwrap().table("samples").unwrap();
    let manifest = run.seal().unwrap();
    assert_eq!((manifest.status, manifest.finished, manifest.failed), (RunStatus::Complete, 10, 2));
    assert!(!dir.join("cells").exists());

    let data = Run::load(&dir).unwrap();
    assert_eq!(data.kinds().unwrap(), ["samples", "waves"]);
    assert_eq!(data.cells[3].coordinates["dp"], json!(3));
    assert_eq!(data.cells[4].status, CellStatus::Failed { reason: "the operand does not fit the memory".to_owned() });
    assert_eq!(data.failures().count(), 2);
    let samples = data.table("samples").unwrap();
    assert_eq!(samples, unsealed);
    assert_eq!(samples.schema()[0].0, "cell");
    let first = result(&inputs.cells[0].id).remove(0).1;
    assert_eq!(samples.slice(0, first.rows()).f64("latency_ns").unwrap(), first.f64("latency_ns").unwrap());
    let narrow = data.table_columns("samples", &["cell", "latency_ns"]).unwrap();
    assert_eq!(narrow.f64("latency_ns").unwrap(), samples.f64("latency_ns").unwrap());
    assert_eq!(data.timings().unwrap()[&inputs.cells[0].id]["planning_s"], 0.5);
    assert_eq!(check(&dir).unwrap().problems, Vec::<String>::new());

    let (run, opened) = Run::open(&dir, &inputs, PLAIN).unwrap();
    assert_eq!(opened, Opened::Complete);
    assert!(run.pending().is_empty() && run.is_finished(&inputs.cells[0].id));
}

#[test]
fn an_interrupted_run_reuses_its_cells_and_ends_with_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, torn) = (folder.path().join("whole"), folder.path().join("torn"));
    let inputs = inputs(9);
    complete(&whole, &inputs);
    {
        let (run, _) = Run::open(&torn, &inputs, PLAIN).unwrap();
        for cell in inputs.cells.iter().rev().take(4) {
            if inputs.cells.iter().position(|c| c == cell) != Some(4) {
                run.finish_cell(&cell.id, result(&cell.id), Timings::new()).unwrap();
            }
        }
        assert!(matches!(run.seal(), Err(StoreError::Incomplete { missing: 5, planned: 9, .. })));
    }
    // One cell torn, one replaced by another's, a temporary file left over, half an event.
    let path = |i: usize| torn.join(format!("cells/{}.cell", inputs.cells[i].id));
    let bytes = fs::read(path(8)).unwrap();
    fs::write(path(8), &bytes[..bytes.len() - 5]).unwrap();
    fs::copy(path(6), path(7)).unwrap();
    fs::write(torn.join(".tmp-abc"), "x").unwrap();
    fs::write(torn.join("cells/.tmp-abc"), "x").unwrap();
    let mut events = fs::read(torn.join("events.jsonl")).unwrap();
    events.extend(b"{\"time\"");
    fs::write(torn.join("events.jsonl"), events).unwrap();
    assert!(!check(&torn).unwrap().is_sound());

    let (run, opened) = Run::open(&torn, &inputs, PLAIN).unwrap();
    assert_eq!(opened, Opened::Resumed { finished: 2 });
    work(&run);
    run.seal().unwrap();
    assert_eq!(shared_bytes(&whole), shared_bytes(&torn));
    let events = fs::read_to_string(torn.join("events.jsonl")).unwrap();
    assert_eq!(events.lines().filter(|l| serde_json::from_str::<serde_json::Value>(l).is_err()).count(), 1);
}

#[test]
fn failed_cells_can_be_computed_again() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, never_failed) = (folder.path().join("run"), folder.path().join("never-failed"));
    let inputs = inputs(6);
    complete(&dir, &inputs);
    let retry = OpenOptions { retry_failed: true, ..PLAIN };
    let (run, opened) = Run::open(&dir, &inputs, retry).unwrap();
    assert_eq!(opened, Opened::Resumed { finished: 5 });
    let pending: Vec<_> = run.pending().into_iter().cloned().collect();
    assert_eq!(pending, [inputs.cells[4].clone()]);
    let now = |run: &Run, id| run.finish_cell(id, result(id), Timings::from([("planning_s".to_owned(), 0.5)])).unwrap();
    now(&run, &pending[0].id);
    run.seal().unwrap();

    let (run, _) = Run::open(&never_failed, &inputs, PLAIN).unwrap();
    inputs.cells.iter().for_each(|cell| now(&run, &cell.id));
    run.seal().unwrap();
    assert_eq!(shared_bytes(&dir), shared_bytes(&never_failed));
}

#[test]
fn other_inputs_are_refused_and_kept_under_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    complete(&dir, &inputs(3));
    let before = shared_bytes(&dir);
    let mut other = inputs(3);
    other.seeds.insert("master".to_owned(), 8);
    let error = Run::open(&dir, &other, PLAIN).unwrap_err();
    assert!(matches!(error, StoreError::OtherInputs { .. }) && error.to_string().contains("seeds"), "{error}");
    assert_eq!(before, shared_bytes(&dir));
    for n in 1..3 {
        other.seeds.insert("master".to_owned(), 8 + n);
        let (_, opened) = Run::open(&dir, &other, OpenOptions { replace_other: true, ..PLAIN }).unwrap();
        assert_eq!(opened, Opened::Fresh);
        assert!(folder.path().join(format!("run.old-{n}")).is_dir());
    }
    assert_eq!(before, shared_bytes(&folder.path().join("run.old-1")));

    let foreign = folder.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("thesis.tex"), "text").unwrap();
    let all = OpenOptions { replace_other: true, retry_failed: true };
    assert!(matches!(Run::open(&foreign, &inputs(3), all), Err(StoreError::NotARun { .. })));
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 1);
}

#[test]
fn bad_plans_are_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let mut twice = inputs(3);
    twice.cells.push(twice.cells[0].clone());
    for bad in [inputs(0), twice] {
        assert!(matches!(Run::open(&dir, &bad, PLAIN), Err(StoreError::Plan(_))));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_second_process_is_kept_out() {
    let folder = tempfile::tempdir().unwrap();
    let (run, _) = Run::open(folder.path(), &inputs(3), PLAIN).unwrap();
    let error = Run::open(folder.path(), &inputs(3), PLAIN).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }) && error.to_string().contains("another process"), "{error}");
    drop(run);
    Run::open(folder.path(), &inputs(3), PLAIN).unwrap();
}

#[test]
fn cells_are_refused_that_do_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = inputs(3);
    let (run, _) = Run::open(folder.path(), &inputs, PLAIN).unwrap();
    let id = &inputs.cells[0].id;
    let unplanned = common::inputs(4).cells.remove(3).id;
    assert!(run.finish_cell(&unplanned, result(&unplanned), Timings::new()).is_err());
    run.finish_cell(id, result(id), Timings::new()).unwrap();
    assert!(run.finish_cell(id, result(id), Timings::new()).is_err());
    let id = &inputs.cells[1].id;
    let column = skewbench_store::Column::U32(vec![1]);
    let odd = skewbench_store::Table::from_columns([("rank", column)]).unwrap();
    let error = run.finish_cell(id, vec![("samples".to_owned(), odd)], Timings::new()).unwrap_err();
    assert!(error.to_string().contains("other cells"), "{error}");
    assert!(run.finish_cell(id, result(id), Timings::from([("x_s".to_owned(), f64::NAN)])).is_err());
}

#[test]
fn cells_finish_on_many_threads() {
    let folder = tempfile::tempdir().unwrap();
    let (one, many) = (folder.path().join("one"), folder.path().join("many"));
    let inputs = inputs(20);
    let (run, _) = Run::open(&one, &inputs, PLAIN).unwrap();
    inputs.cells.iter().for_each(|c| run.finish_cell(&c.id, result(&c.id), Timings::new()).unwrap());
    run.seal().unwrap();
    let (run, _) = Run::open(&many, &inputs, PLAIN).unwrap();
    std::thread::scope(|scope| {
        for part in inputs.cells.chunks(3) {
            let run = &run;
            scope.spawn(move || {
                part.iter().for_each(|c| run.finish_cell(&c.id, result(&c.id), Timings::new()).unwrap())
            });
        }
    });
    run.seal().unwrap();
    assert_eq!(shared_bytes(&one), shared_bytes(&many));
}

#[test]
fn the_check_names_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    complete(&dir, &inputs(6));
    let mut bytes = fs::read(dir.join("samples.parquet")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(dir.join("samples.parquet"), &bytes).unwrap();
    fs::write(dir.join("notes.txt"), "x").unwrap();
    let report = check(&dir).unwrap();
    assert!(
        report.problems.iter().any(|p| p.contains("samples.parquet") && p.contains("sealed")),
        "{:?}",
        report.problems
    );
    assert!(report.problems.iter().any(|p| p.contains("notes.txt")));
    assert!(Run::load(&dir).unwrap().table("samples").is_err());

    fs::write(dir.join("manifest.json"), "{\"schema_version\": 99}").unwrap();
    assert!(matches!(check(&dir), Err(StoreError::Version { found: 99, .. })));
    for text in ["", "{", "[]", "{\"schema_version\": 1}"] {
        fs::write(dir.join("manifest.json"), text).unwrap();
        let error = check(&dir).unwrap_err();
        assert!(error.to_string().contains("manifest.json"), "{error}");
    }
    assert!(matches!(check(folder.path()), Err(StoreError::NotARun { .. })));
}

#[test]
fn archives_are_the_same_and_come_back_whole() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    complete(&dir, &inputs(6));
    let archive = |n: u32| folder.path().join(format!("{n}.tar.zst"));
    export(&dir, &archive(1)).unwrap();
    export(&dir, &archive(2)).unwrap();
    assert_eq!(fs::read(archive(1)).unwrap(), fs::read(archive(2)).unwrap());
    assert!(matches!(export(&dir, &archive(1)), Err(StoreError::Exists { .. })));

    let back = folder.path().join("in/back");
    assert!(import(&archive(1), &back).unwrap().is_sound());
    let mut original = shared_bytes(&dir);
    original.remove(".lock");
    assert_eq!(shared_bytes(&back), original);
    assert!(matches!(import(&archive(1), &back), Err(StoreError::Exists { .. })));

    let bytes = fs::read(archive(1)).unwrap();
    for len in [0, 3, bytes.len() / 2, bytes.len() - 1] {
        fs::write(archive(3), &bytes[..len]).unwrap();
        let error = import(&archive(3), &folder.path().join("torn")).unwrap_err();
        assert!(error.to_string().contains("3.tar.zst"), "{error}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5, "nothing is left behind");
}

#[test]
fn hostile_archives_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, kind: tar::EntryType, size: u64| {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o777);
        // The crate refuses such names; an attacker does not ask it.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.resize(bytes.len() + 2048, 0);
        let path = folder.path().join("evil.tar.zst");
        fs::write(&path, zstd::encode_all(bytes.as_slice(), 1).unwrap()).unwrap();
        path
    };
    let regular = tar::EntryType::Regular;
    let cases = [
        ("../evil", regular, 3),
        ("/etc/evil", regular, 3),
        ("a/b", regular, 3),
        (".lock", regular, 3),
        ("manifest.json", tar::EntryType::Symlink, 0),
        ("manifest.json", tar::EntryType::Link, 0),
        ("manifest.json", tar::EntryType::Directory, 0),
        ("manifest.json", tar::EntryType::GNULongName, 1 << 35),
        ("manifest.json", tar::EntryType::Fifo, 0),
        ("manifest.json", regular, 1 << 40),
        ("manifest.json", regular, 1 << 20),
        ("manifest.json", regular, 3),
    ];
    for (name, kind, size) in cases {
        let path = write(name, kind, size);
        let dest = folder.path().join("dest");
        let error = import(&path, &dest).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{name} {kind:?} {size}: {error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{name} {kind:?} {size}");
    }
}

#[cfg(unix)]
#[test]
fn files_are_the_owners_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    complete(&dir, &inputs(3));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for entry in fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[cfg(unix)]
#[test]
fn what_cannot_be_written_is_an_error_that_names_the_place() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    // A file where a folder is needed fails for every user.
    fs::write(folder.path().join("file"), "x").unwrap();
    let error = Run::open(&folder.path().join("file/run"), &inputs(3), PLAIN).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");

    let locked = folder.path().join("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).unwrap();
    let probe = fs::write(locked.join("probe"), "x");
    if probe.is_ok() {
        eprintln!("skipped: this user may write to read-only folders");
        return;
    }
    let error = Run::open(&locked.join("run"), &inputs(3), PLAIN).unwrap_err();
    assert!(error.to_string().contains("locked"), "{error}");
}
