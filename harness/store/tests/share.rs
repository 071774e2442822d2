//! Several processes on one run: they find each other's results, and whoever seals merges what all have left.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::{inputs, result, shared_bytes, work};
use serde_json::{Value, json};
use skewbench_store::{CellStatus, OpenOptions, Opened, Run, RunStatus, StoreError, Timings, Worker, check};

const PLAIN: OpenOptions = OpenOptions { replace_other: false, retry_failed: false };

fn worker(name: &str) -> Worker {
    Worker { name: name.to_owned(), launch: json!({ "host": name }) }
}

fn names(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn processes_that_come_while_another_seals_disturb_nobody() {
    for _ in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let (dir, inputs) = (folder.path().join("run"), inputs(40));
        let (run, _) = Run::join(&dir, &inputs, &worker("first")).unwrap();
        let (beside, _) = Run::join(&dir, &inputs, &worker("beside")).unwrap();
        work(&run);
        beside.look_again().unwrap();
        std::thread::scope(|scope| {
            // Taken for lost while it sealed, and awake again.
            scope.spawn(|| beside.seal().unwrap());
            for late in 0..6 {
                let (dir, inputs) = (&dir, &inputs);
                scope.spawn(move || {
                    for i in 0..4 {
                        let (run, _) = Run::join(dir, inputs, &worker(&format!("late-{late}-{i}"))).unwrap();
                        run.look_again().unwrap();
                    }
                });
            }
            run.seal().unwrap();
        });
        Run::join(&dir, &inputs, &worker("last")).unwrap();
        assert_eq!(check(&dir).unwrap().problems, Vec::<String>::new());
        let launches = Run::load(&dir).unwrap().manifest.invocations;
        let hosts: Vec<Value> = launches.into_iter().filter_map(|i| i.launch).map(|l| l["host"].clone()).collect();
        assert!(["first", "beside"].iter().all(|name| hosts.contains(&json!(name))), "{hosts:?}");
    }
}

#[test]
fn files_of_processes_that_are_torn_and_pipes_in_place_of_files_stop_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, inputs) = (folder.path().join("run"), inputs(4));
    let (run, _) = Run::join(&dir, &inputs, &worker("a")).unwrap();
    let (_b, _) = Run::join(&dir, &inputs, &worker("b")).unwrap();
    work(&run);
    fs::write(dir.join("workers/b.json"), "{\"half\":").unwrap();
    run.seal().unwrap();
    assert_eq!(check(&dir).unwrap().problems, Vec::<String>::new());
    assert!(fs::read_to_string(dir.join("events.jsonl")).unwrap().contains("worker_damaged"));

    let pipe = dir.join("failures.json");
    fs::remove_file(&pipe).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let problems = check(&dir).unwrap().problems;
    assert!(
        problems.iter().any(|what| what.contains("failures.json") && what.contains("not a regular file")),
        "{problems:?}"
    );
}

#[test]
fn a_run_of_two_processes_has_the_bytes_of_one_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (alone, shared) = (folder.path().join("alone"), folder.path().join("new/shared"));
    let inputs = inputs(11);
    let (run, _) = Run::open(&alone, &inputs, PLAIN).unwrap();
    work(&run);
    run.seal().unwrap();

    let (a, opened) = Run::join(&shared, &inputs, &worker("a")).unwrap();
    assert_eq!(opened, Opened::Fresh);
    let (b, _) = Run::join(&shared, &inputs, &worker("b")).unwrap();
    assert!(matches!(Run::open(&shared, &inputs, PLAIN), Err(StoreError::Locked { .. })));
    let compute = |run: &Run, i: usize| {
        let id = &inputs.cells[i].id;
        if i % 5 == 4 {
            run.fail_cell(id, "the operand does not fit the memory").unwrap();
        } else {
            run.finish_cell(id, result(id), Timings::from([("planning_s".to_owned(), 0.5)])).unwrap();
        }
    };
    (0..6).for_each(|i| compute(&a, i));
    assert_eq!(b.pending().len(), 11);
    b.look_again().unwrap();
    assert_eq!((b.pending().len(), b.finished(), b.failed()), (5, 5, 1));
    assert!(matches!(b.result_of(&inputs.cells[4].id), Ok(CellStatus::Failed { .. })));
    let known = |i: usize| b.known(&inputs.cells[i].id);
    assert_eq!((known(0), known(7)), (CellStatus::Finished, CellStatus::Missing));
    assert!(matches!(known(4), CellStatus::Failed { .. }));
    b.retry(&inputs.cells[4].id);
    b.retry(&inputs.cells[0].id);
    assert_eq!(b.pending().len(), 6);
    compute(&b, 4);
    (6..11).for_each(|i| compute(&b, i));
    assert!(!a.is_sealed().unwrap());
    let (late, opened) = Run::join(&shared, &inputs, &worker("late")).unwrap();
    assert_eq!(opened, Opened::Resumed { finished: 9 });
    b.seal().unwrap();
    assert!(a.is_sealed().unwrap() && late.is_sealed().unwrap());
    assert_eq!(shared_bytes(&alone), shared_bytes(&shared));
    assert_eq!(check(&shared).unwrap().problems, Vec::<String>::new());

    let manifest = Run::load(&shared).unwrap().manifest;
    let hosts: Vec<Value> =
        manifest.invocations.into_iter().filter_map(|i| i.launch).map(|l| l["host"].clone()).collect();
    assert_eq!(hosts, ["a", "b", "late"]);
    let events = fs::read_to_string(shared.join("events.jsonl")).unwrap();
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.iter().filter(|e| e["event"] == "joined").count(), 3);
    assert_eq!(events.iter().filter(|e| e["event"] == "cell_finished").count(), 9);
    assert!(events.is_sorted_by_key(|e| e["time"].as_str().map(str::to_owned)));
    assert!(!names(&shared).contains("workers") && !names(&shared).contains("cells"));
    for made in ["new", "new/shared"] {
        assert_eq!(fs::metadata(folder.path().join(made)).unwrap().permissions().mode() & 0o777, 0o700, "{made}");
    }
}

#[test]
fn a_sealed_run_stays_sealed_for_who_joins_late() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let inputs = inputs(6);
    let (run, _) = Run::join(&dir, &inputs, &worker("a")).unwrap();
    work(&run);
    run.seal().unwrap();
    let before = names(&dir);
    let (run, opened) = Run::join(&dir, &inputs, &worker("b")).unwrap();
    assert_eq!((opened, run.pending().len()), (Opened::Complete, 0));
    assert_eq!(run.seal().unwrap().status, RunStatus::Complete);
    assert_eq!(names(&dir), before);
    // Its failed cells can be computed again, once it is opened for that.
    assert!(Run::reopen_failed(&dir, &inputs).unwrap());
    assert!(!Run::reopen_failed(&dir, &inputs).unwrap());
    let (run, opened) = Run::join(&dir, &inputs, &worker("c")).unwrap();
    assert_eq!(opened, Opened::Resumed { finished: 5 });
    assert_eq!(run.pending(), [&inputs.cells[4]]);
    let mut other = inputs.clone();
    other.seeds.insert("master".to_owned(), 8);
    assert!(matches!(Run::join(&dir, &other, &worker("d")), Err(StoreError::OtherInputs { .. })));
    assert!(Run::join(&dir, &inputs, &worker("../d")).is_err());
}

#[test]
fn torn_copied_and_foreign_files_of_cells_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let inputs = inputs(5);
    let (run, _) = Run::join(&dir, &inputs, &worker("a")).unwrap();
    inputs.cells.iter().for_each(|c| run.finish_cell(&c.id, result(&c.id), Timings::new()).unwrap());
    let path = |i: usize| dir.join(format!("cells/{}.cell", inputs.cells[i].id));
    let bytes = fs::read(path(0)).unwrap();
    fs::write(path(0), &bytes[..bytes.len() / 2]).unwrap();
    fs::copy(path(1), path(2)).unwrap();
    fs::copy(path(1), dir.join("cells/copy.cell")).unwrap();
    drop(run);
    let problems = check(&dir).unwrap().problems;
    let says = |parts: &[&str]| problems.iter().any(|p| parts.iter().all(|part| p.contains(part)));
    assert!(says(&[inputs.cells[0].id.as_str(), "checksum"]), "{problems:?}");
    assert!(says(&[inputs.cells[2].id.as_str(), "holds cell", inputs.cells[1].id.as_str()]), "{problems:?}");
    assert!(says(&["copy.cell", "no planned cell"]), "{problems:?}");
    let (run, opened) = Run::join(&dir, &inputs, &worker("b")).unwrap();
    assert_eq!(opened, Opened::Resumed { finished: 3 });
    assert_eq!(run.pending().len(), 2);
}

#[test]
fn a_run_that_several_left_is_finished_by_one_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (alone, shared) = (folder.path().join("alone"), folder.path().join("shared"));
    let inputs = inputs(7);
    let (run, _) = Run::open(&alone, &inputs, PLAIN).unwrap();
    work(&run);
    run.seal().unwrap();
    let (run, _) = Run::join(&shared, &inputs, &worker("a")).unwrap();
    let id = &inputs.cells[2].id;
    run.finish_cell(id, result(id), Timings::from([("planning_s".to_owned(), 0.5)])).unwrap();
    drop(run);
    let (run, opened) = Run::open(&shared, &inputs, PLAIN).unwrap();
    assert_eq!(opened, Opened::Resumed { finished: 1 });
    work(&run);
    run.seal().unwrap();
    assert_eq!(shared_bytes(&alone), shared_bytes(&shared));
    assert_eq!(check(&shared).unwrap().problems, Vec::<String>::new());
}

#[test]
fn the_plan_of_a_study_that_never_began_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let (mut other, inputs) = (inputs(3), inputs(6));
    other.seeds.insert("master".to_owned(), 8);
    // Killed between the plan and the manifest.
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("cells.json"), serde_json::to_vec(&other.cells).unwrap()).unwrap();
    let (run, opened) = Run::join(&dir, &inputs, &worker("a")).unwrap();
    assert_eq!(opened, Opened::Fresh);
    work(&run);
    run.seal().unwrap();
    assert_eq!(check(&dir).unwrap().problems, Vec::<String>::new());
    assert!(matches!(Run::join(&dir, &other, &worker("b")), Err(StoreError::OtherInputs { .. })));
    // Killed between the manifest and the plan.
    let dir = folder.path().join("second");
    drop(Run::join(&dir, &inputs, &worker("a")).unwrap());
    fs::remove_file(dir.join("cells.json")).unwrap();
    Run::join(&dir, &inputs, &worker("b")).unwrap();
    assert_eq!(Run::load(&dir).unwrap().cells.len(), 6);
}

/// Another submission tries a failed cell again while the first still holds that it failed.
#[test]
fn who_seals_counts_what_the_files_hold() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let inputs = inputs(5);
    let (first, _) = Run::join(&dir, &inputs, &worker("a")).unwrap();
    work(&first);
    assert_eq!((first.finished(), first.failed()), (4, 1));
    let id = &inputs.cells[4].id;
    let (second, _) = Run::join(&dir, &inputs, &worker("b")).unwrap();
    second.retry(id);
    second.finish_cell(id, result(id), Timings::from([("planning_s".to_owned(), 0.5)])).unwrap();
    let manifest = first.seal().unwrap();
    assert_eq!((manifest.finished, manifest.failed), (5, 0));
    assert_eq!(check(&dir).unwrap().problems, Vec::<String>::new());
    // It finds the run sealed, and what a process left that was killed before it could tidy up.
    fs::create_dir(dir.join("cells")).unwrap();
    fs::write(dir.join("cells").join(format!("{id}.cell")), "").unwrap();
    assert_eq!(second.seal().unwrap(), manifest);
    assert!(!names(&dir).contains("cells"));
}

/// What network file systems leave of files that another process of the node has open.
#[test]
fn remainders_of_removed_folders_are_no_strangers() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let (run, _) = Run::join(&dir, &inputs(3), &worker("a")).unwrap();
    work(&run);
    fs::write(dir.join("workers/.nfs000000000001"), "{}").unwrap();
    run.seal().unwrap();
    assert!(names(&dir).contains("workers"));
    assert_eq!(check(&dir).unwrap().problems, Vec::<String>::new());
    skewbench_store::export(&dir, &folder.path().join("run.tar.zst")).unwrap();
    skewbench_store::import_folder(&dir, &folder.path().join("copy")).unwrap();
    fs::write(dir.join("workers/other"), "").unwrap();
    assert!(check(&dir).unwrap().problems.iter().any(|p| p.contains("workers is not part of the run")));
}
