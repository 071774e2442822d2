/// A batch script that ships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Template {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Arguments that it needs.
    pub arguments: &'static [&'static str],
    /// The script.
    pub text: &'static str,
}

/// All scripts that ship: the files of `scripts/slurm`.
pub const TEMPLATES: [Template; 4] = [
    Template {
        name: "reproduce",
        about: "the paper's figures, their cells spread over the nodes of one job",
        arguments: &["OUT"],
        text: include_str!("../../../../scripts/slurm/reproduce.sbatch"),
    },
    Template {
        name: "sweep",
        about: "an experiment, its cells spread over a job array",
        arguments: &["EXPERIMENT", "OUT"],
        text: include_str!("../../../../scripts/slurm/sweep.sbatch"),
    },
    Template {
        name: "compare",
        about: "all systems of a study of yours, on all cards of a node",
        arguments: &["STUDY", "OUT"],
        text: include_str!("../../../../scripts/slurm/compare.sbatch"),
    },
    Template {
        name: "calibrate",
        about: "every card of every node: a profile a node, and the spread between cards",
        arguments: &["OUT"],
        text: include_str!("../../../../scripts/slurm/calibrate.sbatch"),
    },
];

impl Template {
    /// A script that ships, by its name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TEMPLATES.iter().find(|template| template.name == name)
    }
}
