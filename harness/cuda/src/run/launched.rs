use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use skewbench_cluster::{ClusterError, Launch, Owner, Patience};

use super::courier::Courier;
use super::rendezvous::{Meeting, Rendezvous};
use crate::CudaError;

/// Name of the blob with a process's [`Word`].
const WORD: &str = "meeting";

/// What the processes of a launch tell each other before they meet.
#[derive(Debug, Serialize, Deserialize)]
struct Word {
    host: String,
    /// Folder of the meeting, from the first rank.
    meeting: Option<PathBuf>,
}

impl Rendezvous {
    /// Takes the place of a process that `srun`, `mpirun` or `torchrun` started, among all that it started. They find each other
    /// in `base`, a folder that all of them see and only this user may enter, such as that of the run: rank 0 makes the folder in
    /// which they meet, in memory where there is a place for that, tells its name, and keeps it until it ends.
    ///
    /// # Errors
    /// [`CudaError::Launch`] names ranks that do not come within `limit`, two processes of one rank, and ranks on other hosts:
    /// cards of one session are those of one host. As [`Rendezvous::join`].
    pub fn of_launch(base: &Path, launch: &Launch, limit: Duration) -> Result<Self, CudaError> {
        let failed = |error: ClusterError| CudaError::Launch(error.to_string());
        let owner = Owner::current(launch).map_err(failed)?;
        let mut place =
            skewbench_cluster::Rendezvous::join(base, launch, &owner, Patience::of(limit)).map_err(failed)?;
        Self::met(launch, |word| {
            let all = place.exchange(word).map_err(failed)?;
            place.leave().map_err(failed)?;
            Ok(all)
        })
    }

    /// As [`Rendezvous::of_launch`], with processes that find each other through a courier and need no folder for that; it carries
    /// names of communicators as well.
    ///
    /// # Errors
    /// As [`Rendezvous::of_launch`]; the courier cannot carry a word.
    pub fn of_courier(courier: &Arc<dyn Courier>, launch: &Launch, limit: Duration) -> Result<Self, CudaError> {
        let mut joined = Self::met(launch, |word| {
            courier.give(WORD, word).map_err(CudaError::Launch)?;
            let of = |rank: u32| {
                if rank == launch.rank {
                    return Ok(word.to_vec());
                }
                let told = courier.take(WORD, rank as usize, limit).map_err(CudaError::Launch)?;
                let late = || CudaError::Launch(format!("rank {rank} has not come within {} s", limit.as_secs_f64()));
                told.ok_or_else(late)
            };
            (0..launch.world).map(of).collect()
        })?;
        joined.courier = Some(Arc::clone(courier));
        Ok(joined)
    }

    /// Meets the others, after every process has told all others its word.
    fn met(launch: &Launch, tell: impl FnOnce(&[u8]) -> Result<Vec<Vec<u8>>, CudaError>) -> Result<Self, CudaError> {
        let garbled = |error: serde_json::Error| CudaError::Launch(format!("a process's word: {error}"));
        let meeting = (launch.rank == 0).then(Meeting::new).transpose()?;
        let path = meeting.as_ref().map(|meeting| meeting.path().to_path_buf());
        let word = Word { host: launch.host.clone(), meeting: path };
        let all = tell(&serde_json::to_vec(&word).map_err(garbled)?)?;
        let words: Vec<Word> =
            all.iter().map(|bytes| serde_json::from_slice(bytes)).collect::<Result<_, _>>().map_err(garbled)?;
        let first = words.first();
        if let Some((rank, other)) =
            words.iter().enumerate().find(|(_, word)| first.is_some_and(|f| f.host != word.host))
        {
            let host = first.map(|word| word.host.as_str()).unwrap_or_default();
            let what = format!(
                "rank 0 runs on {host}, rank {rank} on {}; cards of one session are those of one host",
                other.host
            );
            return Err(CudaError::Launch(what));
        }
        let folder = first.and_then(|word| word.meeting.as_deref());
        let folder = folder.ok_or_else(|| CudaError::Launch("rank 0 names no folder to meet in".to_owned()))?;
        let mut joined = Self::join(folder, launch.rank as usize, launch.world as usize)?;
        joined.meeting = meeting;
        Ok(joined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn launch(rank: u32, world: u32, host: &str) -> Launch {
        Launch { rank, world, key: "job-1".into(), ..Launch::alone(host) }
    }

    fn join(base: &Path, hosts: &[&str]) -> Vec<Result<Rendezvous, CudaError>> {
        std::thread::scope(|scope| {
            let of = |(rank, host): (usize, &&str)| {
                let launch = launch(rank as u32, hosts.len() as u32, host);
                scope.spawn(move || Rendezvous::of_launch(base, &launch, LONG))
            };
            let all: Vec<_> = hosts.iter().enumerate().map(of).collect();
            all.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        })
    }

    /// What ranks publish for each other, the name of a communicator for one, is found through the folder of the launch.
    #[test]
    fn processes_of_a_launch_meet() {
        let dir = tempfile::tempdir().expect("a folder");
        let base = dir.path().join("meeting");
        let mut all: Vec<Rendezvous> =
            join(&base, &["n1", "n1", "n1"]).into_iter().collect::<Result<_, _>>().expect("joined");
        assert!(!base.exists(), "what they met by is removed");
        assert_eq!(all.iter().map(|r| (r.rank(), r.ranks())).collect::<Vec<_>>(), [(0, 3), (1, 3), (2, 3)]);
        all[0].publish("nccl-0.0.0", &[7; 128]).expect("published");
        assert_eq!(all[2].wait("nccl-0.0.0", 0, "naming", LONG).expect("there"), [7; 128]);
        let folder = all[0].folder().to_path_buf();
        let last = all.split_off(1);
        drop(last);
        assert!(folder.exists());
        drop(all);
        assert!(!folder.exists(), "rank 0 removes the folder");
    }

    /// A rank that is slow still finds what rank 0 brought to the last exchange.
    #[test]
    fn the_folder_stays_until_all_have_left() {
        let dir = tempfile::tempdir().expect("a folder");
        let base = dir.path().join("meeting");
        let mut all: Vec<Rendezvous> =
            join(&base, &["n1", "n1"]).into_iter().collect::<Result<_, _>>().expect("joined");
        let (slow, first) = (all.remove(1), all.remove(0));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                first.publish("last", &[3]).expect("published");
                drop(first);
            });
            std::thread::sleep(Duration::from_millis(200));
            assert_eq!(slow.wait("last", 0, "bringing it", LONG).expect("there"), [3]);
            drop(slow);
        });
    }

    #[test]
    fn ranks_that_do_not_fit_are_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let base = dir.path().join("meeting");
        for error in join(&base, &["n1", "n2"]).into_iter().map(|joined| joined.expect_err("two hosts").to_string()) {
            assert_eq!(error, "rank 0 runs on n1, rank 1 on n2; cards of one session are those of one host");
        }
        let alone = Rendezvous::of_launch(&base, &launch(0, 3, "n1"), Duration::from_millis(50));
        let error = alone.expect_err("the others are missing").to_string();
        assert!(error.contains("2 of 3 ranks") && error.contains("ranks 1-2"), "{error}");
    }
}
