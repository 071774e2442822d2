//! Batch scripts: rendered, checked by bash, refused, and handed to a stand-in for sbatch.
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::common::{Done, Lab};

const SCRIPTS: [&str; 4] = ["reproduce", "sweep", "compare", "calibrate"];

/// Runs the binary with nothing on PATH but the lab's `bin`.
fn run(lab: &Lab, words: &[&str]) -> Done {
    let mut command = lab.command();
    command.args(words).env("PATH", lab.path("bin")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Done { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Puts a stand-in for sbatch, in bash, on the lab's PATH.
fn sbatch(lab: &Lab, body: &str) {
    std::fs::create_dir_all(lab.path("bin")).unwrap();
    lab.write("bin/sbatch", format!("#!/bin/bash\n{body}\n"));
    std::fs::set_permissions(lab.path("bin/sbatch"), std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn rendered_scripts_are_scripts() {
    let lab = Lab::new();
    lab.write("site.sh", "#SBATCH --constraint=h200\nmodule load cuda\n");
    for script in SCRIPTS {
        let size = if script == "sweep" { "--array-size 200 --array-limit 8" } else { "--nodes 3" };
        let line = format!(
            "slurm render {script} {size} --account proj --partition gpu,long --time 1-00:00:00 --container /i/s.sif \
             --mount /shared --nccl-interface ib0 --header site.sh --out {script}.sbatch"
        );
        assert_eq!(lab.run(&line).ok(), "");
        let text = std::fs::read_to_string(lab.path(&format!("{script}.sbatch"))).unwrap();
        for part in
            ["--account=proj", "--partition=gpu,long", "--constraint=h200", "NCCL_SOCKET_IFNAME=ib0", "/i/s.sif"]
        {
            assert!(text.contains(part), "{script}: {part}\n{text}");
        }
        assert!(lab.run(&line).error(10).contains("exists already"));
        let checked = Command::new("bash").arg("-n").arg(lab.path(&format!("{script}.sbatch"))).output().unwrap();
        assert!(checked.status.success(), "{text}");
        // A file that was rendered is filled again as the script that it came from.
        let again = lab.run(&format!("slurm render {script}.sbatch --account other")).ok();
        assert!(again.contains("--account=other") && !again.contains("--account=proj"), "{again}");
        assert!(lab.run(&format!("slurm render {script}")).ok().starts_with("#!/bin/bash\n#SBATCH --job-name"));
    }
}

#[test]
fn hostile_values_are_refused() {
    let lab = Lab::new();
    sbatch(&lab, "echo 1");
    let options = [
        "--account",
        "--partition",
        "--qos",
        "--job-name",
        "--nodes",
        "--time",
        "--cpus-per-task",
        "--gpus-per-node",
        "--container",
        "--nccl-interface",
        "--program",
    ];
    for option in options {
        for value in ["a;id", "$(id)", "`id`", "a b", "a\n#SBATCH --uid=0", "'", "", "--wrap", "a\u{202e}b"] {
            let word = format!("{option}={value}");
            for words in
                [vec!["slurm", "render", "reproduce", &word], vec!["slurm", "submit", "reproduce", &word, "out"]]
            {
                let done = run(&lab, &words);
                assert_eq!(done.code, Some(2), "{words:?}: {}{}", done.stdout, done.stderr);
                assert!(done.stdout.is_empty() && done.stderr.contains(option), "{words:?}: {}", done.stderr);
            }
        }
    }
    for (line, code, what) in [
        ("slurm render swep", 2, "did you mean sweep?"),
        ("slurm render reproduce --array-size 3", 2, "no job array"),
        ("slurm render sweep --nodes 3", 2, "size of the array"),
        ("slurm render sweep --array-size 0", 2, "--array-size"),
        ("slurm render reproduce --mount /x", 2, "--container"),
        ("slurm render absent.sbatch", 10, "absent.sbatch"),
        ("slurm render reproduce --header absent", 10, "absent"),
        ("slurm submit sweep out", 2, "EXPERIMENT OUT; 1 given"),
    ] {
        let done = lab.run(line);
        assert_eq!(done.code, Some(code), "{line}: {}", done.stderr);
        assert!(done.stderr.contains(what), "{line}: {}", done.stderr);
    }
    lab.write("bad.sh", "module load x\n#SBATCH -A y\n");
    assert!(lab.run("slurm render reproduce --header bad.sh").error(10).contains("bad.sh: site header, line 2"));
}

#[test]
fn jobs_are_handed_to_sbatch() {
    let lab = Lab::new();
    let submit =
        ["slurm", "submit", "sweep", "--account", "proj", "--array-size", "7", "mine.toml", "/o ut", "--seed", "$(id)"];
    let message = run(&lab, &submit).error(11);
    assert!(message.contains("sbatch not found") && message.contains("slurm render"), "{message}");
    // The second word is the script, whose copy Slurm keeps.
    let keep = "printf '%s\\n' \"$1\" \"${@:3}\" > seen; while read -r line; do echo \"$line\"; done < \"$2\" > script";
    sbatch(&lab, &format!("{keep}; echo '4711;far'"));
    assert_eq!(run(&lab, &submit).ok(), "4711\n");
    let seen = std::fs::read_to_string(lab.path("seen")).unwrap();
    assert_eq!(seen, "--parsable\nmine.toml\n/o ut\n--seed\n$(id)\n");
    let script = std::fs::read_to_string(lab.path("script")).unwrap();
    assert!(script.contains("#SBATCH --account=proj\n#SBATCH --array=0-6\n"), "{script}");
    sbatch(&lab, "[[ $2 == --test-only && $4 == out ]] && echo 'sbatch: Job 5 to start at noon' >&2");
    let test = run(&lab, &["slurm", "submit", "--test-only", "reproduce", "out"]);
    assert_eq!(test.ok(), "sbatch: Job 5 to start at noon\n");
    sbatch(&lab, "printf 'sbatch: error: invalid account\\n\\033[31m' >&2; exit 1");
    let message = run(&lab, &submit).error(10);
    assert!(message.contains("invalid account") && !message.contains('\u{1b}'), "{message}");
    sbatch(&lab, "echo hello");
    assert!(run(&lab, &submit).error(10).contains("no job number"));
}
