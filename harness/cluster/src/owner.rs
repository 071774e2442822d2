use std::fs;

use serde::{Deserialize, Serialize};

use crate::{ClusterError, Launch};

/// A process that claims cells: enough to tell on its host whether it lives, and on any other whose it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// A random name: no two processes have the same.
    pub id: String,
    /// What was submitted together: the job (all tasks of an array), the launch where its ranks agree on a name, or this
    /// process alone.
    pub submission: String,
    /// [`Launch::key`] of its launch.
    pub launch: String,
    /// Job of the launcher, if any.
    pub job: Option<String>,
    /// Task of a job array.
    pub array_task: Option<u32>,
    /// How often the job was requeued before.
    pub restart: u32,
    /// Rank in its launch.
    pub rank: u32,
    /// Node, as the launcher names it.
    pub node: String,
    /// Process number on the host.
    pub pid: u32,
    /// Kernel, boot and process namespace that the process number belongs to; empty where there is no way to tell.
    system: String,
    /// When the process started, in ticks since boot.
    started: u64,
}

impl Owner {
    /// This process.
    ///
    /// # Errors
    /// The system gives no random name.
    pub fn current(launch: &Launch) -> Result<Self, ClusterError> {
        let id = random_name()?;
        let job = launch.job.as_ref();
        let submission = job.map_or_else(|| id.clone(), |job| job.submission());
        let pid = std::process::id();
        Ok(Self {
            submission,
            launch: launch.key.clone(),
            id,
            job: job.map(|job| job.id.clone()),
            array_task: job.and_then(|job| job.array_task),
            restart: job.map_or(0, |job| job.restart),
            rank: launch.rank,
            node: launch.host.clone(),
            pid,
            system: system().unwrap_or_default(),
            started: started(pid).unwrap_or(0),
        })
    }

    /// True when its process runs in the same system as this one and is over.
    pub fn has_ended(&self) -> bool {
        self.is_here() && started(self.pid) != Some(self.started)
    }

    /// True when its process runs in the same system as this one and is not over.
    pub fn is_running(&self) -> bool {
        self.is_here() && started(self.pid) == Some(self.started)
    }

    fn is_here(&self) -> bool {
        !self.system.is_empty() && system().as_ref() == Some(&self.system)
    }

    /// True when `self` was started by an earlier turn of the same job as `other`, before the job was requeued.
    pub fn is_before_requeue_of(&self, other: &Self) -> bool {
        self.job.is_some()
            && (&self.job, self.array_task) == (&other.job, other.array_task)
            && self.restart < other.restart
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(job) = &self.job {
            write!(f, "job {job}")?;
            if let Some(task) = self.array_task {
                write!(f, " task {task}")?;
            }
            write!(f, " ")?;
        }
        write!(f, "rank {} on {} (process {})", self.rank, self.node, self.pid)
    }
}

/// 32 random hexadecimal digits.
pub(crate) fn random_name() -> Result<String, ClusterError> {
    let file = std::path::Path::new("/dev/urandom");
    let mut bytes = [0u8; 16];
    fs::File::open(file)
        .and_then(|mut f| std::io::Read::read_exact(&mut f, &mut bytes))
        .map_err(ClusterError::io("read", file))?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

/// What process numbers are unique in: a boot of a kernel, and a namespace of processes in it.
fn system() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let space = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), space.display()))
}

/// When a process started, in ticks since boot; none when there is no such process, or only what its parent has not collected.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; state and 19 numbers follow it, then the time.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let time = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> Owner {
        Owner::current(&Launch::alone("here")).expect("an owner")
    }

    #[test]
    fn a_process_lives_until_it_has_ended() {
        let mut owner = me();
        assert!(!owner.has_ended() && owner.is_running());
        assert_ne!(owner.id, me().id);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a child");
        (owner.pid, owner.started) = (child.id(), started(child.id()).expect("a start"));
        assert!(!owner.has_ended());
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert!(owner.has_ended() && !owner.is_running());
        owner.system.push('x');
        assert!(!owner.has_ended() && !owner.is_running(), "nobody can tell from another system");
    }

    #[test]
    fn a_requeued_job_knows_its_earlier_turns() {
        let of =
            |job: Option<&str>, array_task, restart| Owner { job: job.map(str::to_owned), array_task, restart, ..me() };
        assert!(of(Some("7"), Some(1), 0).is_before_requeue_of(&of(Some("7"), Some(1), 1)));
        assert!(!of(Some("7"), Some(1), 1).is_before_requeue_of(&of(Some("7"), Some(1), 1)));
        assert!(!of(Some("7"), Some(2), 0).is_before_requeue_of(&of(Some("7"), Some(1), 1)));
        assert!(!of(None, None, 0).is_before_requeue_of(&of(None, None, 1)));
    }

    #[test]
    fn owners_say_where_they_are() {
        let owner = Owner { job: Some("12".into()), array_task: Some(3), rank: 1, node: "n2".into(), pid: 9, ..me() };
        assert_eq!(owner.to_string(), "job 12 task 3 rank 1 on n2 (process 9)");
    }
}
