//! Programs good and hostile, written in the shell: what a system made of them does.
#![cfg(unix)]

mod answers;
mod good;
mod hostile;
mod naming;

use serde_json::Map;
use skewbench_external::{Catalogue, Ledger};
use skewbench_plan::{AttentionShape, Domain, FlopsCost, PackedSequence, Plan, SystemError};
use skewbench_systems::registry::System;

const SHAPE: AttentionShape = AttentionShape { q_heads: 4, kv_heads: 2, head_dim: 8 };
const HELLO: &str = r#"{"type":"hello","protocol":1,"name":"script","version":"1","plans":true,"scope":"pool"}"#;

/// One block of eight rows on rank 1.
const ANSWER: &str =
    r#"printf '{"id":%s,"assignment":{"blocks":[{"seq":0,"start":0,"end":8,"workers":[1]}]}}\n' "$id""#;

/// A folder with a manifest and its program.
struct Lab {
    folder: tempfile::TempDir,
}

impl Lab {
    /// A program that runs `body` for every request, with its number in `$id` and the request in `$line`.
    fn serving(hello: &str, body: &str) -> Self {
        let id = r#"id=${line#*\"id\":}; id=${id%%,*}"#;
        Self::running(&format!("read -r line\nprintf '%s\\n' '{hello}'\nwhile read -r line; do\n{id}\n{body}\ndone\n"))
    }

    fn running(script: &str) -> Self {
        let lab = Self { folder: tempfile::tempdir().unwrap() };
        lab.write("script.sh", script);
        lab.manifest("");
        lab
    }

    /// With time limits that a program that hangs meets soon.
    fn hasty(self) -> Self {
        self.manifest("timeout_s = 1\nhello_timeout_s = 2\n");
        self
    }

    fn manifest(&self, more: &str) {
        self.write("script.toml", &format!("name = \"script\"\ncommand = [\"sh\", \"script.sh\"]\n{more}"));
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn catalogue(&self) -> Catalogue {
        Catalogue::at(self.folder.path())
    }

    /// Plans eight tokens on two ranks, ends the system, and returns the plan or the reason with the ledger.
    fn plan(&self) -> (Result<Plan, String>, Ledger) {
        self.plan_of(&[5, 3], "script")
    }

    fn plan_of(&self, documents: &[u32], name: &str) -> (Result<Plan, String>, Ledger) {
        let catalogue = self.catalogue();
        let system = catalogue.system(name, &Map::new(), 7).unwrap();
        let plan = plan(&system, &[documents], 2).map_err(|e| e.to_string());
        drop(system);
        (plan, catalogue.take_ledger())
    }

    /// The reason for which there is no plan.
    #[track_caller]
    fn reason(&self) -> String {
        let message = self.plan().0.expect_err("a plan of a hostile program");
        assert!(message.contains("external system script (sh script.sh) "), "{message}");
        assert!(!message.contains('\n') && message.len() < 1000, "{message}");
        message
    }
}

fn plan(system: &System, sequences: &[&[u32]], cp: u32) -> Result<Plan, SystemError> {
    let sequences: Vec<PackedSequence> = sequences.iter().map(|s| PackedSequence::new(s.iter().copied())).collect();
    let sequences: Vec<&PackedSequence> = sequences.iter().collect();
    let nodes = vec![0; sequences.len() * cp as usize];
    let cost = FlopsCost { flops_per_s: 4e14, bytes_per_s: 4e10 };
    let domain = Domain { sequences: &sequences, cp, shape: SHAPE, nodes: &nodes, cost: &cost, time_factors: &[] };
    system.planner().plan(&domain)
}

#[track_caller]
fn contains(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}
