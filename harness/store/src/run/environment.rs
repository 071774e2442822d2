//! What of the environment may be stored, and what never is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use serde_json::Value;

/// Beginnings of the names of variables that are recorded.
const PREFIXES: [&str; 4] = ["NCCL_", "CUDA_", "OMP_", "RUST_LOG"];
/// Variables of Slurm that say where and how a process runs, but not whose it is.
const OF_SLURM: [&str; 44] = [
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_COUNT",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_CPUS_ON_NODE",
    "SLURM_CPUS_PER_GPU",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPU_BIND",
    "SLURM_CPU_BIND_TYPE",
    "SLURM_DISTRIBUTION",
    "SLURM_GPUS",
    "SLURM_GPUS_ON_NODE",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GPU_BIND",
    "SLURM_HINT",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_JOB_GPUS",
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION",
    "SLURM_LOCALID",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_MPI_TYPE",
    "SLURM_NNODES",
    "SLURM_NODEID",
    "SLURM_NODELIST",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_PROCID",
    "SLURM_RESTART_COUNT",
    "SLURM_STEP_GPUS",
    "SLURM_STEP_ID",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
    "SLURM_THREADS_PER_CORE",
    "SLURMD_NODENAME",
];
/// Parts of names that hint at a secret.
const SECRET: [&str; 8] = ["TOKEN", "KEY", "SECRET", "PASSW", "PASSPHRASE", "CREDENTIAL", "JWT", "COOKIE"];
/// Characters from which on name and value of such a variable are looked for; shorter ones are words of any text.
const SHORTEST_SECRET: usize = 8;
/// Characters of a value that are recorded.
const LONGEST_VALUE: usize = 4096;
/// What stands in place of a secret.
const HIDDEN: &str = "[hidden]";

fn is_secret(name: &str) -> bool {
    let upper = name.to_uppercase();
    SECRET.iter().any(|part| upper.contains(part))
}

/// The variables that a manifest may record: those of NCCL, CUDA, OpenMP, the log level, and of Slurm those that say where a
/// process runs; none whose name hints at a secret, and of no value the part that is name or value of such a variable.
pub fn collect_environment(variables: impl IntoIterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let all: Vec<(String, String)> = variables.into_iter().collect();
    let secrets = secrets_of(&all);
    let allowed = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || OF_SLURM.contains(&name);
    let kept = all.iter().filter(|(name, _)| allowed(name) && !is_secret(name));
    kept.map(|(name, value)| {
        let value: String = hide(value, &secrets).chars().take(LONGEST_VALUE).collect();
        (name.clone(), value)
    })
    .collect()
}

/// This process's variables that are text.
pub(super) fn variables() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Names and values of variables whose names hint at a secret, longest first, so that one that another begins with hides no
/// part of it.
fn secrets_of(variables: &[(String, String)]) -> Vec<String> {
    let texts = variables.iter().filter(|(name, _)| is_secret(name)).flat_map(|(name, value)| [name, value]);
    let long = |text: &&str| text.chars().count() >= SHORTEST_SECRET;
    let distinct: BTreeSet<&str> = texts.map(|text| text.trim()).filter(long).collect();
    let mut secrets: Vec<String> = distinct.into_iter().map(str::to_owned).collect();
    secrets.sort_by_key(|value| std::cmp::Reverse(value.len()));
    secrets
}

fn hide(text: &str, secrets: &[String]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        if text.contains(secret.as_str()) {
            text = text.replace(secret.as_str(), HIDDEN);
        }
    }
    text
}

/// The text without names and values of this process's variables whose names hint at a secret: what programs print may hold
/// them.
pub(super) fn without_secrets(text: &str) -> String {
    static SECRETS: OnceLock<Vec<String>> = OnceLock::new();
    hide(text, SECRETS.get_or_init(|| secrets_of(&variables())))
}

/// The same for all texts in a value.
pub(super) fn value_without_secrets(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(without_secrets(text)),
        Value::Array(items) => Value::Array(items.iter().map(value_without_secrets).collect()),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(key, value)| (without_secrets(key), value_without_secrets(value))).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_is_recorded_is_on_the_list() {
        let kept = collect_environment(pairs(&[
            ("NCCL_DEBUG", "INFO"),
            ("CUDA_VISIBLE_DEVICES", "0,1"),
            ("OMP_NUM_THREADS", "4"),
            ("RUST_LOG", "debug"),
            ("SLURM_JOB_ID", "17"),
            ("SLURMD_NODENAME", "n1"),
            ("SLURM_JWT", "eyJhbGciOi"),
            ("SLURM_JOB_USER", "someone"),
            ("SLURM_SUBMIT_DIR", "/home/someone"),
            ("SLURM_JOB_COMMENT", "anything"),
            ("SLURM_JOB_NAME", "anything"),
            ("NCCL_API_KEY", "x"),
            ("CUDA_passwd", "x"),
            ("HOME", "/root"),
            ("PATH", "/bin"),
        ]));
        let names: Vec<&str> = kept.keys().map(String::as_str).collect();
        let wanted =
            ["CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "OMP_NUM_THREADS", "RUST_LOG", "SLURMD_NODENAME", "SLURM_JOB_ID"];
        assert_eq!(names, wanted);
    }

    #[test]
    fn secrets_in_allowed_values_are_hidden() {
        let kept = collect_environment(pairs(&[
            ("NCCL_CONF_FILE", "/etc/hf_abcdefgh/hf_abcdefghij"),
            ("HF_TOKEN", "hf_abcdefgh"),
            ("NCCL_DEBUG_FILE", "of HF_TOKEN"),
            ("WANDB_API_KEY", "hf_abcdefghij"),
            ("SHORT_KEY", "etc"),
        ]));
        assert_eq!(kept["NCCL_CONF_FILE"], "/etc/[hidden]/[hidden]");
        assert_eq!(kept["NCCL_DEBUG_FILE"], "of [hidden]");
        let long = collect_environment(pairs(&[("NCCL_X", &"x".repeat(10_000))]));
        assert_eq!(long["NCCL_X"].len(), LONGEST_VALUE);
    }
}
