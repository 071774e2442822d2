use super::{Job, Launch, Launcher};
use crate::ClusterError;

/// Variables of one launcher that place a process among others.
struct Names {
    launcher: Launcher,
    rank: &'static str,
    world: &'static [&'static str],
    local_rank: &'static [&'static str],
    local_world: &'static [&'static str],
    /// Without the local rank they are incomplete.
    needs_local: bool,
}

const OPEN_MPI: Names = Names {
    launcher: Launcher::OpenMpi,
    rank: "OMPI_COMM_WORLD_RANK",
    world: &["OMPI_COMM_WORLD_SIZE"],
    local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
    local_world: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
    needs_local: true,
};
const TORCHRUN: Names = Names {
    launcher: Launcher::Torchrun,
    rank: "RANK",
    world: &["WORLD_SIZE"],
    local_rank: &["LOCAL_RANK"],
    local_world: &["LOCAL_WORLD_SIZE"],
    needs_local: true,
};
const PMI: Names = Names {
    launcher: Launcher::Pmi,
    rank: "PMI_RANK",
    world: &["PMI_SIZE"],
    local_rank: &["MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"],
    local_world: &["MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"],
    needs_local: false,
};
/// Variables of processes that Hydra starts.
const HYDRA: [&str; 2] = ["MPI_LOCALRANKID", "MPI_LOCALNRANKS"];
const SLURM: Names = Names {
    launcher: Launcher::Slurm,
    rank: "SLURM_PROCID",
    world: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
    local_rank: &["SLURM_LOCALID"],
    local_world: &[],
    needs_local: true,
};

/// Where a process stands, by the variables of one launcher.
struct Seen {
    launcher: Launcher,
    names: [String; 2],
    rank: u32,
    world: u32,
    local_rank: Option<u32>,
    local_world: Option<u32>,
}

struct Vars<F>(F);

impl<F: Fn(&str) -> Option<String>> Vars<F> {
    fn text(&self, name: &str) -> Option<String> {
        let value = (self.0)(name).filter(|value| !value.is_empty())?;
        // They are printed, stored and compared as names; a launcher's have no other characters and are short.
        Some(value.chars().take(MOST_CHARACTERS).map(|c| if c.is_control() { '?' } else { c }).collect())
    }

    fn number(&self, name: &str) -> Result<Option<u32>, ClusterError> {
        let Some(value) = self.text(name) else { return Ok(None) };
        let number = value.parse();
        number
            .map(Some)
            .map_err(|_| ClusterError::Launch(format!("{name}={value} is not a number from 0 to {}", u32::MAX)))
    }

    /// The first of several variables that is set, with its name.
    fn first(&self, names: &[&'static str]) -> Result<Option<(&'static str, u32)>, ClusterError> {
        for name in names {
            if let Some(value) = self.number(name)? {
                return Ok(Some((*name, value)));
            }
        }
        Ok(None)
    }

    /// What a launcher says; nothing when it says neither rank nor size.
    fn seen(&self, names: &Names) -> Result<Option<Seen>, ClusterError> {
        let (rank, world) = (self.number(names.rank)?, self.first(names.world)?);
        let (local_rank, local_world) = (self.first(names.local_rank)?, self.first(names.local_world)?);
        let world_name = world.map_or(names.world[0], |(name, _)| name);
        let partial = |missing: &str, set: &str| {
            Err(ClusterError::Launch(format!(
                "{set} is set and {missing} is not: start all processes by {}, or unset both",
                names.launcher.name()
            )))
        };
        let (rank, world) = match (rank, world) {
            (None, None) => return Ok(None),
            (Some(_), None) => return partial(world_name, names.rank),
            (None, Some(_)) => return partial(names.rank, world_name),
            (Some(rank), Some((_, world))) => (rank, world),
        };
        if names.needs_local && local_rank.is_none() {
            return partial(names.local_rank[0], names.rank);
        }
        if rank >= world {
            return contradiction(format!(
                "{}={rank} of {world_name}={world}: ranks end at {}",
                names.rank,
                i64::from(world) - 1
            ));
        }
        if let (Some((rank_name, local)), Some((name, of))) = (local_rank, local_world)
            && local >= of
        {
            return contradiction(format!("{rank_name}={local} of {name}={of}: ranks end at {}", i64::from(of) - 1));
        }
        if let Some((name, local)) = local_rank.filter(|(_, local)| *local > rank) {
            return contradiction(format!("{name}={local} is above {}={rank}", names.rank));
        }
        if let Some((name, local)) = local_world.filter(|(_, local)| *local > world) {
            return contradiction(format!("{name}={local} is above {world_name}={world}"));
        }
        Ok(Some(Seen {
            launcher: names.launcher,
            names: [names.rank.to_owned(), world_name.to_owned()],
            rank,
            world,
            local_rank: local_rank.map(|(_, value)| value),
            local_world: local_world.map(|(_, value)| value),
        }))
    }
}

fn contradiction<T>(what: String) -> Result<T, ClusterError> {
    Err(ClusterError::Launch(format!("the launcher's variables contradict each other: {what}")))
}

impl Seen {
    /// An error unless two launchers that both describe this process say the same.
    fn agrees(&self, other: &Self) -> Result<(), ClusterError> {
        if (self.rank, self.world) == (other.rank, other.world) {
            return Ok(());
        }
        let says = |seen: &Self| format!("{}={} of {}={}", seen.names[0], seen.rank, seen.names[1], seen.world);
        contradiction(format!(
            "{}, but {}; unset those of the launcher that did not start this process",
            says(self),
            says(other)
        ))
    }
}

impl Launch {
    /// Finds out which process this is. `host` is the system's name for the node; `var` looks variables up.
    ///
    /// A process that `torchrun` or `mpirun` started inside a Slurm step is the inner launcher's; the step is its helper's.
    ///
    /// # Errors
    /// [`ClusterError::Launch`] for variables that are no numbers, incomplete, or contradict each other; it names them.
    pub fn detect(host: &str, var: impl Fn(&str) -> Option<String>) -> Result<Self, ClusterError> {
        let vars = Vars(var);
        // A batch script has the job's variables and is no process of a step.
        let slurm = if vars.text("SLURM_STEP_ID").is_some() { vars.seen(&SLURM)? } else { None };
        let (open_mpi, torchrun, pmi) = (vars.seen(&OPEN_MPI)?, vars.seen(&TORCHRUN)?, vars.seen(&PMI)?);
        let elastic = vars.text("TORCHELASTIC_RUN_ID").is_some();
        let step = slurm.as_ref().filter(|seen| seen.world > 1);
        if !elastic {
            if let Some(by_hand) = &torchrun {
                let other = open_mpi.as_ref().or(pmi.as_ref()).or(step);
                other.map_or(Ok(()), |other| by_hand.agrees(other))?;
            }
            // Hydra, the launcher of MPICH and Intel MPI, starts its helpers by srun and numbers processes itself. It names
            // their places on the node, which Slurm's own PMI does not.
            let hydra = HYDRA.iter().all(|name| vars.text(name).is_some());
            if open_mpi.is_none()
                && let (Some(pmi), Some(step)) = (&pmi, step)
                && !(hydra && pmi.world != step.world)
            {
                pmi.agrees(step)?;
            }
            if let (Some(rank), Some(seen)) = (vars.number("PMIX_RANK")?, open_mpi.as_ref().or(step))
                && rank != seen.rank
            {
                return contradiction(format!("PMIX_RANK={rank}, but {}={}", seen.names[0], seen.rank));
            }
        }
        let job = job(&vars)?;
        let host = vars.text("SLURMD_NODENAME").unwrap_or_else(|| host.to_owned());
        let order = if elastic { [torchrun, open_mpi, pmi, slurm] } else { [open_mpi, pmi, torchrun, slurm] };
        let Some(seen) = order.into_iter().flatten().next() else {
            return Ok(Self { job, ..Self::alone(&host) });
        };
        let node = vars.number("SLURM_NODEID")?.filter(|_| seen.launcher != Launcher::OpenMpi);
        let local_world = match seen.launcher {
            Launcher::Slurm => node.and_then(|node| tasks_of(&vars.text("SLURM_STEP_TASKS_PER_NODE")?, node)),
            _ => seen.local_world,
        };
        Ok(Self {
            launcher: seen.launcher,
            rank: seen.rank,
            world: seen.world,
            local_rank: seen.local_rank.unwrap_or(0),
            local_world,
            node,
            host,
            key: key(&vars, seen.launcher, job.as_ref()),
            job,
        })
    }
}

/// Characters of a variable that count.
const MOST_CHARACTERS: usize = 1024;

fn job<F: Fn(&str) -> Option<String>>(vars: &Vars<F>) -> Result<Option<Job>, ClusterError> {
    let Some(id) = vars.text("SLURM_JOB_ID") else { return Ok(None) };
    if !id.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ClusterError::Launch(format!("SLURM_JOB_ID={id} is not a number")));
    }
    let (array, array_task) = (vars.text("SLURM_ARRAY_JOB_ID"), vars.number("SLURM_ARRAY_TASK_ID")?);
    match (&array, array_task) {
        (Some(_), None) | (None, Some(_)) => {
            let what = "of SLURM_ARRAY_JOB_ID and SLURM_ARRAY_TASK_ID only one is set; tasks of an array have both";
            Err(ClusterError::Launch(what.to_owned()))
        }
        _ => Ok(Some(Job { id, array, array_task, restart: vars.number("SLURM_RESTART_COUNT")?.unwrap_or(0) })),
    }
}

/// Name of a launch, of letters, digits, dots and dashes.
fn key<F: Fn(&str) -> Option<String>>(vars: &Vars<F>, launcher: Launcher, job: Option<&Job>) -> String {
    let names: &[&str] = match launcher {
        Launcher::Alone | Launcher::Slurm => &["SLURM_STEP_ID"],
        Launcher::OpenMpi => &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
        Launcher::Pmi => &["PMI_JOBID", "SLURM_STEP_ID"],
        Launcher::Torchrun => &["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"],
    };
    let mut parts = vec![launcher.name().split(' ').next().unwrap_or_default().to_owned()];
    parts.extend(job.map(|job| format!("{}.{}", job.id, job.restart)));
    parts.extend(names.iter().filter_map(|name| vars.text(name)));
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '-' };
    parts.join("_").chars().map(plain).take(128).collect()
}

/// Tasks of a node from Slurm's short form, e.g. `2(x3),1`.
fn tasks_of(text: &str, node: u32) -> Option<u32> {
    let mut before = 0u32;
    for part in text.split(',') {
        let (tasks, nodes) = match part.split_once("(x") {
            Some((tasks, nodes)) => (tasks.parse().ok()?, nodes.strip_suffix(')')?.parse().ok()?),
            None => (part.parse().ok()?, 1u32),
        };
        before = before.checked_add(nodes)?;
        if node < before {
            return Some(tasks);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn detect(vars: &[(&str, &str)]) -> Result<Launch, String> {
        let var = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        Launch::detect("vm", var).map_err(|e| e.to_string())
    }

    const STEP: [(&str, &str); 10] = [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "3"),
        ("SLURM_NTASKS", "5"),
        ("SLURM_STEP_NUM_TASKS", "5"),
        ("SLURM_LOCALID", "1"),
        ("SLURM_NODEID", "1"),
        ("SLURM_STEP_TASKS_PER_NODE", "2(x2),1"),
        ("SLURMD_NODENAME", "n2"),
        ("SLURM_RESTART_COUNT", "2"),
    ];
    const MPIRUN: [(&str, &str); 6] = [
        ("OMPI_COMM_WORLD_RANK", "2"),
        ("OMPI_COMM_WORLD_SIZE", "4"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ("PMIX_RANK", "2"),
        ("PMIX_NAMESPACE", "12345@1"),
    ];
    const TORCH: [(&str, &str); 4] =
        [("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "4")];

    fn with<'a>(base: &[(&'a str, &'a str)], more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        more.iter().chain(base).copied().collect()
    }

    #[test]
    fn steps_of_slurm() {
        let launch = detect(&STEP).expect("a step");
        assert_eq!((launch.launcher, launch.rank, launch.world), (Launcher::Slurm, 3, 5));
        assert_eq!((launch.local_rank, launch.local_world, launch.node), (1, Some(2), Some(1)));
        assert_eq!((launch.host.as_str(), launch.key.as_str()), ("n2", "srun-7.2-0"));
        assert_eq!(launch.job.map(|job| (job.id, job.restart)), Some(("7".to_owned(), 2)));
        // With a PMI of Slurm's, which says the same.
        let pmi = detect(&with(&STEP, &[("PMI_RANK", "3"), ("PMI_SIZE", "5"), ("PMIX_RANK", "3")])).expect("a step");
        assert_eq!((pmi.launcher, pmi.rank, pmi.local_rank), (Launcher::Pmi, 3, 1));
    }

    #[test]
    fn batch_scripts_and_arrays() {
        let batch = [("SLURM_JOB_ID", "9"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_LOCALID", "0")];
        let launch = detect(&batch).expect("a batch script");
        assert_eq!((launch.launcher, launch.world, launch.rank), (Launcher::Alone, 1, 0));
        let array = with(&batch, &[("SLURM_ARRAY_JOB_ID", "8"), ("SLURM_ARRAY_TASK_ID", "3")]);
        let job = detect(&array).expect("a task").job.expect("a job");
        assert_eq!((job.submission().as_str(), job.array_task), ("8.0", Some(3)));
        let half = detect(&with(&batch, &[("SLURM_ARRAY_TASK_ID", "3")])).expect_err("half");
        assert!(half.contains("SLURM_ARRAY_JOB_ID"), "{half}");
        let foreign = detect(&with(&[("SLURM_JOB_ID", "../../x")], &batch[1..])).expect_err("no number");
        assert!(foreign.contains("SLURM_JOB_ID"), "{foreign}");
        let hostile = "n\u{1b}[31m\n".repeat(1000);
        let host = detect(&with(&STEP, &[("SLURMD_NODENAME", &hostile)])).expect("a step").host;
        assert!(host.chars().count() == MOST_CHARACTERS && !host.chars().any(char::is_control), "{host}");
    }

    #[test]
    fn inner_launchers_win() {
        let alone = detect(&MPIRUN).expect("mpirun");
        assert_eq!((alone.launcher, alone.rank, alone.world, alone.local_world), (Launcher::OpenMpi, 2, 4, Some(2)));
        assert_eq!(alone.key, "mpirun-12345-1");
        let inside = detect(&with(&MPIRUN, &STEP)).expect("mpirun in a step");
        assert_eq!((inside.launcher, inside.rank, inside.node), (Launcher::OpenMpi, 2, None));
        let torch = detect(&with(&TORCH, &with(&STEP, &[("TORCHELASTIC_RUN_ID", "x y")]))).expect("torchrun in a step");
        assert_eq!((torch.launcher, torch.rank, torch.key.as_str()), (Launcher::Torchrun, 5, "torchrun-7.2-x-y"));
        // MPICH and Intel MPI on several nodes: the step is of a helper a node.
        let proxies = with(&STEP, &[("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2"), ("PMIX_RANK", "1")]);
        let hydra = [("PMI_RANK", "9"), ("PMI_SIZE", "16"), ("MPI_LOCALRANKID", "1"), ("MPI_LOCALNRANKS", "8")];
        let inside = detect(&with(&hydra, &proxies)).expect("mpiexec in a step");
        assert_eq!((inside.launcher, inside.rank, inside.world), (Launcher::Pmi, 9, 16));
        assert_eq!((inside.local_rank, inside.local_world, inside.node), (1, Some(8), Some(1)));
        assert!(detect(&with(&hydra[..2], &proxies)).is_err(), "nothing says that Hydra started it");
        assert_eq!(detect(&TORCH).expect("by hand").world, 8);
        assert_eq!(detect(&[]).expect("alone").launcher, Launcher::Alone);
    }

    #[test]
    fn partial_and_contradictory_variables_are_named() {
        let cases: [(Vec<_>, &[&str]); 10] = [
            (vec![("RANK", "0")], &["RANK", "WORLD_SIZE"]),
            (vec![("WORLD_SIZE", "2")], &["RANK", "WORLD_SIZE"]),
            (vec![("RANK", "0"), ("WORLD_SIZE", "2")], &["LOCAL_RANK"]),
            (with(&TORCH, &[("RANK", "8")]), &["RANK=8", "WORLD_SIZE=8", "end at 7"]),
            (with(&TORCH, &[("LOCAL_RANK", "4")]), &["LOCAL_RANK=4", "LOCAL_WORLD_SIZE=4"]),
            (with(&TORCH, &[("RANK", "-1")]), &["RANK=-1"]),
            (with(&TORCH, &STEP), &["RANK=5", "WORLD_SIZE=8", "SLURM_PROCID=3", "SLURM_STEP_NUM_TASKS=5"]),
            (with(&TORCH, &MPIRUN), &["RANK=5", "OMPI_COMM_WORLD_RANK=2"]),
            (with(&MPIRUN, &[("PMIX_RANK", "1")]), &["PMIX_RANK=1", "OMPI_COMM_WORLD_RANK=2"]),
            (with(&STEP, &[("PMI_RANK", "3"), ("PMI_SIZE", "4")]), &["PMI_SIZE=4", "SLURM_STEP_NUM_TASKS=5"]),
        ];
        for (vars, named) in cases {
            let error = detect(&vars).expect_err("an error");
            assert!(named.iter().all(|name| error.contains(name)), "{error}");
        }
        // A shell in a step of one task may start more by hand.
        let shell = with(&STEP, &[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_LOCALID", "0")]);
        assert_eq!(detect(&with(&TORCH, &shell)).expect("by hand").rank, 5);
    }

    #[test]
    fn short_forms_of_tasks() {
        assert_eq!([0, 1, 2, 3].map(|node| tasks_of("2(x2),1", node)), [Some(2), Some(2), Some(1), None]);
        assert_eq!(tasks_of("x", 0), None);
        assert_eq!(tasks_of("4294967295(x4294967295),1(x9)", u32::MAX), None);
    }

    proptest! {
        #[test]
        fn no_environment_is_a_panic(values in proptest::collection::vec("[0-9]{0,3}|-1|x|[0-9]\\(x[0-9]\\)", 12)) {
            let names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "SLURM_STEP_ID",
                "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_JOB_ID", "SLURM_STEP_TASKS_PER_NODE"];
            let vars: Vec<(&str, &str)> = names.into_iter().zip(values.iter().map(String::as_str)).collect();
            if let Ok(launch) = detect(&vars) {
                prop_assert!(launch.rank < launch.world);
                prop_assert!(!launch.key.is_empty() && !launch.key.contains('/'));
            }
        }
    }
}
