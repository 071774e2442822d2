use std::path::Path;

use serde_json::json;
use skewbench_store::{CellId, RunInputs};

/// How claims on the cells and the end of some runs are named.
#[derive(Clone, Debug)]
pub struct Names(CellId);

impl Names {
    /// Names for runs in their folders. Those of other runs are others, wherever cells are the same: a figure's, those of a stage
    /// of tuning, and those of another stage with the same inputs, which lies elsewhere.
    pub fn of<'r>(runs: impl Iterator<Item = (&'r Path, &'r RunInputs)>) -> Self {
        let place = |dir: &Path| -> Vec<String> {
            dir.iter().rev().take(2).map(|part| part.to_string_lossy().into_owned()).collect()
        };
        Self(CellId::of(&json!(runs.map(|(dir, inputs)| json!([inputs.hash(), place(dir)])).collect::<Vec<_>>())))
    }

    /// A cell.
    pub fn cell(&self, id: &CellId) -> String {
        format!("{id}.{}", self.0)
    }

    /// What only one process at a time may do: seal the runs, render what they hold, and open them again.
    pub fn seal(&self) -> String {
        format!("seal.{}", self.0)
    }

    /// What a process has for as long as it tries failed cells again.
    pub fn retry(&self, owner: &str) -> String {
        format!("retry-{owner}.{}", self.0)
    }

    /// True for a name of [`retry`](Self::retry), of any process.
    pub fn is_retry(&self, name: &str) -> bool {
        name.strip_prefix(RETRY).and_then(|rest| rest.split_once('.')).is_some_and(|(_, of)| of == self.0.as_str())
    }
}

/// How names of retries begin.
pub const RETRY: &str = "retry-";

#[cfg(test)]
mod tests {
    use skewbench_store::Cell;

    use super::*;

    #[test]
    fn runs_that_differ_or_lie_elsewhere_have_names_of_their_own() {
        let id = CellId::of(&json!("cell"));
        let of = |dir: &str, experiment: &str| {
            let cells = vec![Cell::new(&json!("cell"), serde_json::Map::new())];
            let inputs = RunInputs { experiment: experiment.to_owned(), cells, ..RunInputs::default() };
            Names::of([(Path::new(dir), &inputs)].into_iter())
        };
        let names = of("/shared/out/run/a", "x");
        assert_eq!(names.cell(&id), of("other/spelling/out/run/a", "x").cell(&id));
        assert_ne!(names.cell(&id), of("/shared/out/run/a", "y").cell(&id));
        assert_ne!(names.cell(&id), of("/shared/out-tuning/a/000-libra/stage-1", "x").cell(&id));
        let stage = |place: &str| of(&format!("t/a/{place}/stage-1"), "x").seal();
        assert_ne!(stage("000-libra"), stage("001-libra"));
        assert!(names.is_retry(&names.retry("0a")) && !names.is_retry(&names.seal()));
        assert!(!names.is_retry(&of("/shared/out/run/a", "y").retry("0a")));
    }
}
