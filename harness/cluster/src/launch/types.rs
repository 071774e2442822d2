use serde::{Deserialize, Serialize};

use crate::ClusterError;

/// Who started the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Launcher {
    /// Nobody that says so: the process is alone.
    Alone,
    /// `srun`.
    Slurm,
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// Another MPI's launcher.
    Pmi,
    /// `torchrun`, or RANK, WORLD_SIZE and LOCAL_RANK set by hand.
    Torchrun,
}

impl Launcher {
    /// The program that starts processes this way.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Slurm => "srun",
            Self::OpenMpi => "mpirun",
            Self::Pmi => "mpiexec (PMI)",
            Self::Torchrun => "torchrun",
        }
    }
}

/// The batch job that a process belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its number.
    pub id: String,
    /// Number of the array that it is a task of.
    pub array: Option<String>,
    /// Task of the array.
    pub array_task: Option<u32>,
    /// How often it was requeued.
    pub restart: u32,
}

impl Job {
    /// What was submitted together, of one turn: all tasks of an array share it.
    pub(crate) fn submission(&self) -> String {
        format!("{}.{}", self.array.as_ref().unwrap_or(&self.id), self.restart)
    }
}

/// How processes stand for ranks that have a card each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessModel {
    /// Every rank is a process.
    ProcessPerCard,
    /// Every node has one process with a thread a card.
    ProcessPerNode,
}

/// One process among those that were started together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Who started it.
    pub launcher: Launcher,
    /// Its number, 0 to `world` - 1.
    pub rank: u32,
    /// Processes of the launch.
    pub world: u32,
    /// Its number among those of its node.
    pub local_rank: u32,
    /// Processes of its node, where the launcher says.
    pub local_world: Option<u32>,
    /// Number of its node, where the launcher says.
    pub node: Option<u32>,
    /// Its node, as the launcher or else the system names it.
    pub host: String,
    /// The batch job, if any.
    pub job: Option<Job>,
    /// Name that all processes of the launch share and no other launch has at the same time.
    pub key: String,
}

impl Launch {
    /// A process of its own.
    pub fn alone(host: &str) -> Self {
        Self {
            launcher: Launcher::Alone,
            rank: 0,
            world: 1,
            local_rank: 0,
            local_world: Some(1),
            node: None,
            host: host.to_owned(),
            job: None,
            key: "alone".to_owned(),
        }
    }

    /// How the processes stand for `ranks` ranks, `cards_per_node` of which share a node.
    ///
    /// # Errors
    /// [`ClusterError::Layout`] when the launch has neither a process a rank nor a process a node.
    pub fn model(&self, ranks: u32, cards_per_node: u32) -> Result<ProcessModel, ClusterError> {
        let nodes = ranks.div_ceil(cards_per_node.max(1));
        let local = |most: u32| self.local_world.is_none_or(|local| local <= most);
        if self.world == ranks && local(cards_per_node) {
            return Ok(ProcessModel::ProcessPerCard);
        }
        if self.world == nodes && local(1) {
            return Ok(ProcessModel::ProcessPerNode);
        }
        let here = self.local_world.map_or_else(String::new, |local| format!(", {local} on {}", self.host));
        Err(ClusterError::Layout(format!(
            "{} started {} processes{here}; a layout of {ranks} ranks, {cards_per_node} cards a node, needs {ranks} processes (at most {cards_per_node} a node) or {nodes} (one a node, a thread a card)",
            self.launcher.name(),
            self.world
        )))
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        let mut text = format!("{}: rank {} of {} on {}", self.launcher.name(), self.rank, self.world, self.host);
        if let Some(job) = &self.job {
            text += &format!(", job {}", job.id);
            if let (Some(array), Some(task)) = (&job.array, job.array_task) {
                text += &format!(" (task {task} of array {array})");
            }
            if job.restart > 0 {
                text += &format!(", requeued {} times", job.restart);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_need_a_process_a_rank_or_a_node() {
        let of = |world, local| Launch { world, local_world: local, ..Launch::alone("n1") };
        assert_eq!(of(16, Some(8)).model(16, 8).ok(), Some(ProcessModel::ProcessPerCard));
        assert_eq!(of(2, Some(1)).model(16, 8).ok(), Some(ProcessModel::ProcessPerNode));
        assert_eq!(of(1, Some(1)).model(1, 8).ok(), Some(ProcessModel::ProcessPerCard));
        assert!(of(16, Some(16)).model(16, 8).is_err());
        assert!(of(2, Some(2)).model(16, 8).is_err());
        let refused = of(3, None).model(16, 8).expect_err("three").to_string();
        assert!(refused.contains("3 processes") && refused.contains("needs 16 processes"), "{refused}");
    }
}
