use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime};

use super::*;
use crate::Launch;

const LONG: Duration = Duration::from_secs(3600);

fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("claims");
    (dir, folder)
}

fn me() -> Owner {
    Owner::current(&Launch::alone("here")).expect("an owner")
}

fn join(folder: &Path, owner: Owner, lost_after: Duration) -> Claims {
    Claims::join(folder, owner, Terms { lost_after, shares: true }).expect("joined")
}

/// Claims of a process that nobody can tell the end of.
fn elsewhere(folder: &Path, lost_after: Duration) -> Claims {
    let mut value = serde_json::to_value(me()).expect("json");
    value["system"] = "another".into();
    join(folder, serde_json::from_value(value).expect("an owner"), lost_after)
}

/// The same of one that was killed.
fn killed(folder: &Path, lost_after: Duration) -> Claims {
    let claims = elsewhere(folder, lost_after);
    claims.pulse().stops();
    claims
}

fn ours(claims: &Claims, name: &str) -> Option<(Claim, Option<Loss>)> {
    match claims.claim(name, |_| false).expect("an attempt") {
        Attempt::Ours(claim, before) => Some((claim, before.last().map(|former| former.loss))),
        Attempt::Theirs(..) | Attempt::Done(_) => None,
    }
}

/// Tries until a claim counts no more.
fn taken_over(claims: &Claims, name: &str) -> (Claim, Vec<Former>) {
    let began = Instant::now();
    loop {
        if let Attempt::Ours(claim, before) = claims.claim(name, |_| false).expect("an attempt") {
            return (claim, before);
        }
        assert!(began.elapsed() < Duration::from_secs(60), "nobody was judged lost");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_name_is_one_process_s_until_it_gives_it_back() {
    let (_dir, folder) = folder();
    let [a, b] = [me(), me()].map(|owner| join(&folder, owner, LONG));
    let (claim, before) = ours(&a, "x-1.r").expect("ours");
    assert_eq!(before, None);
    assert!(ours(&b, "x-1.r").is_none() && ours(&a, "x-1.r").is_none());
    assert!(matches!(b.claim("x-1.r", |_| false), Ok(Attempt::Theirs(owner, Life::Shown)) if owner == *a.owner()));
    assert_eq!(b.holder("x-1.r").expect("known"), Some((a.owner().clone(), Life::Shown)));
    assert_eq!(b.names("x").expect("names"), BTreeSet::from(["x-1.r".to_owned()]));
    assert_eq!(b.names("y").expect("names"), BTreeSet::new());
    a.release(&claim).expect("released");
    assert_eq!(b.holder("x-1.r").expect("known"), None);
    let (again, before) = ours(&b, "x-1.r").expect("ours");
    assert_eq!((again.number, before), (2, Some(Loss::Released)));
    assert!(!a.is_ours(&claim).expect("known") && b.is_ours(&again).expect("known"));
    // Work that is over is done again only where that is asked for.
    b.done(&again).expect("noted");
    assert!(matches!(a.claim("x-1.r", |_| false), Ok(Attempt::Done(owner)) if owner == *b.owner()));
    assert_eq!(a.holder("x-1.r").expect("known"), None);
    assert!(matches!(a.claim("x-1.r", |owner| owner == b.owner()), Ok(Attempt::Ours(_, before)) if before.is_empty()));
    for wrong in ["", "../x", ".a", "a/b", "a\0"] {
        assert!(a.claim(wrong, |_| false).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_removed_folder_is_closed_and_can_be_entered_again() {
    let (dir, folder) = folder();
    let [a, b] = [me(), me()].map(|owner| join(&folder, owner, LONG));
    ours(&a, "x").expect("ours");
    let left = dir.path().join("claims.gone-0");
    fs::create_dir_all(left.join("owners")).expect("made");
    a.remove();
    assert!(!folder.exists() && !left.exists());
    #[cfg(target_os = "linux")]
    for file in fs::read_dir("/proc/self/fd").expect("files").flatten() {
        let open = fs::read_link(file.path()).unwrap_or_default();
        assert!(!open.to_string_lossy().contains(&format!("{}.alive", a.owner().id)), "{} is open", open.display());
    }
    let gone = b.claim("x", |_| false).expect_err("gone");
    assert!(gone.is_gone(), "{gone}");
    b.rejoin().expect("joined again");
    assert_eq!(ours(&b, "x").map(|(claim, before)| (claim.number, before)), Some((1, None)));
    assert!(matches!(join(&folder, me(), LONG).claim("x", |_| false), Ok(Attempt::Theirs(_, Life::Shown))));
    // A file that is removed by hand, or was when a removal was broken off.
    fs::remove_file(alive(&folder, &b.owner().id)).expect("removed");
    assert!(matches!(ours(&join(&folder, me(), LONG), "x"), Some((_, Some(Loss::Ended)))));
}

#[test]
fn lost_claims_are_taken_over_by_one() {
    let (_dir, folder) = folder();
    let lost_after = Duration::from_millis(400);
    let lost = killed(&folder, lost_after);
    let (claim, _) = ours(&lost, "x").expect("ours");
    let judges: Vec<Claims> = (0..4).map(|_| join(&folder, me(), LONG)).collect();
    assert!(judges.iter().all(|judge| ours(judge, "x").is_none()));
    std::thread::sleep(lost_after * 2);
    let taken: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = judges.iter().map(|judge| scope.spawn(|| ours(judge, "x"))).collect();
        all.into_iter().filter_map(|thread| thread.join().expect("joined")).collect()
    });
    assert_eq!(taken.len(), 1, "{taken:?}");
    assert!(matches!(taken[0].1, Some(Loss::Silent(time)) if time > lost_after));
    assert!(!lost.is_ours(&claim).unwrap_or(false));
}

#[test]
fn all_who_had_a_name_are_known_and_why_they_lost_it() {
    let (_dir, folder) = folder();
    let short = Duration::from_millis(100);
    let first = join(&folder, me(), LONG);
    let (claim, _) = ours(&first, "x").expect("ours");
    first.release(&claim).expect("released");
    let second = killed(&folder, short);
    ours(&second, "x").expect("ours");
    // It judges, and is lost then.
    let third = elsewhere(&folder, short);
    taken_over(&third, "x");
    third.pulse().stops();
    // A requeued job judges at once.
    let mut turn = me();
    (turn.job, turn.restart) = (Some("7".to_owned()), 0);
    let fourth = join(&folder, turn.clone(), LONG);
    taken_over(&fourth, "x");
    (turn.id, turn.restart) = ("f".to_owned(), 1);
    let fifth = join(&folder, turn, LONG);
    let (claim, before) = taken_over(&fifth, "x");
    fifth.release(&claim).expect("released");
    let (claim, all) = taken_over(&first, "x");
    assert_eq!((claim.number, all.len()), (6, 5));
    assert_eq!(all[..4], before);
    let found: Vec<bool> = all.iter().map(Former::broke_down).collect();
    assert_eq!(found, [false, true, true, false, false], "{all:?}");
    assert_eq!(all[3].loss, Loss::Requeued);
    assert!(matches!(all[1], Former { ref owner, loss: Loss::Silent(_) } if *owner == second.owner));
}

/// Others judge a process by what it says of itself: here a judge that would itself be lost after a fifth of a second.
#[test]
fn a_process_that_beats_is_not_lost() {
    let (_dir, folder) = folder();
    let judge = join(&folder, me(), Duration::from_millis(200));
    // It beats every second.
    let slow = elsewhere(&folder, Duration::from_secs(8));
    ours(&slow, "x").expect("ours");
    let mut shown = false;
    for _ in 0..30 {
        std::thread::sleep(Duration::from_millis(100));
        match judge.claim("x", |_| false) {
            Ok(Attempt::Theirs(_, life)) => shown |= life == Life::Shown,
            // The judge itself was starved.
            Err(ClusterError::Silent { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(shown, "its beats were not seen");
}

#[test]
fn nobody_is_judged_by_who_was_silent_too() {
    let (_dir, folder) = folder();
    let lost_after = Duration::from_secs(2);
    let judge = join(&folder, me(), lost_after);
    let other = killed(&folder, lost_after);
    ours(&other, "x").expect("ours");
    std::thread::sleep(lost_after / 2);
    // A server that did not answer anybody for longer than that; the judge is the first to come back.
    other.pulse().set(SystemTime::now().checked_sub(Duration::from_secs(60)).expect("a time"));
    judge.pulse().was_silent(Duration::from_secs(60), "no answer");
    assert!(judge.claim("x", |_| false).is_err());
    judge.pulse().now().expect("a beat");
    let attempt = judge.claim("x", |_| false);
    assert!(matches!(attempt, Ok(Attempt::Theirs(_, Life::Unknown(_)))), "{attempt:?}");
    // It stays silent.
    assert!(matches!(taken_over(&judge, "x").1[..], [Former { loss: Loss::Silent(_), .. }]));
}

#[test]
fn strangers_are_named_unless_both_share() {
    let (_dir, folder) = folder();
    let of = |launch: &str, shares| {
        let mut owner = me();
        launch.clone_into(&mut owner.launch);
        Claims::join(&folder, owner, Terms { lost_after: LONG, shares }).expect("joined")
    };
    let a = of("a", false);
    assert_eq!(a.strangers().expect("known"), []);
    let same = of("a", false);
    assert_eq!(same.strangers().expect("known"), []);
    let b = of("b", true);
    assert_eq!(b.strangers().expect("known").len(), 2);
    assert_eq!(a.strangers().expect("known"), [(b.owner().clone(), Life::Shown)]);
    drop((a, same));
    assert_eq!(b.strangers().expect("known"), []);
    let _c = of("c", true);
    assert_eq!(b.strangers().expect("known"), []);
}

#[test]
fn clocks_of_nodes_do_not_matter() {
    let (_dir, folder) = folder();
    let hour = Duration::from_secs(3600);
    let other = killed(&folder, Duration::from_millis(50));
    ours(&other, "x").expect("ours");
    let judge = join(&folder, me(), LONG);
    std::thread::sleep(Duration::from_millis(100));
    // A file system whose clock is hours from this host's, in either direction: all that is compared is its own time.
    for ahead in [true, false] {
        let now = SystemTime::now();
        let at = if ahead { now.checked_add(5 * hour) } else { now.checked_sub(5 * hour) };
        other.pulse().set(at.expect("a time"));
        let lost = ours(&judge, "x").is_some();
        assert_eq!(lost, !ahead, "the write lies hours from the judge's last write on the same file system");
    }
}

#[test]
fn a_process_that_cannot_beat_stops() {
    let (_dir, folder) = folder();
    let claims = elsewhere(&folder, LONG);
    let (claim, _) = ours(&claims, "x").expect("ours");
    claims.pulse().was_silent(LONG, "No space left on device");
    let error = claims.is_ours(&claim).expect_err("silent").to_string();
    assert!(error.contains("No space left on device") && error.contains("3600 s"), "{error}");
    assert!(claims.claim("y", |_| false).is_err());
}

#[test]
fn folders_are_ours_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("a/b/claims");
    drop(join(&folder, me(), LONG));
    for made in ["a", "a/b", "a/b/claims", "a/b/claims/owners"] {
        let mode = fs::metadata(dir.path().join(made)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{made}");
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).expect("set");
    let open = Claims::join(&folder, me(), Terms { lost_after: LONG, shares: true }).expect_err("open");
    assert!(open.to_string().contains("chmod 700"));
}

/// 10,000 cells, 200 processes, of which every tenth is lost once in the middle of a cell.
#[test]
fn no_cell_is_done_twice_and_none_is_lost() {
    const CELLS: usize = 10_000;
    const JOBS: usize = 200;
    let (_dir, folder) = folder();
    let done: Vec<AtomicUsize> = (0..CELLS).map(|_| AtomicUsize::new(0)).collect();
    let folder = &folder;
    let done = &done;
    let job = |number: usize| {
        let claims = join(folder, me(), LONG);
        let mut taken = 0;
        for i in 0..CELLS {
            let cell = (i + number * CELLS / JOBS) % CELLS;
            if done[cell].load(Ordering::SeqCst) > 0 {
                continue;
            }
            let Some((claim, _)) = ours(&claims, &format!("{cell}")) else { continue };
            taken += 1;
            if number.is_multiple_of(10) && taken == 7 {
                claims.release(&claim).expect("released");
                continue;
            }
            done[cell].fetch_add(1, Ordering::SeqCst);
        }
        // Claims of processes that have ended count no more; here no result says that their work is done.
        claims
    };
    let _all: Vec<Claims> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..JOBS).map(|number| scope.spawn(move || job(number))).collect();
        all.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    // What the last holder of a cell gave back is left for another submission.
    job(1);
    let counts: BTreeSet<usize> = done.iter().map(|count| count.load(Ordering::SeqCst)).collect();
    assert_eq!(counts, BTreeSet::from([1]));
}
