//! Texts that the binary prints about itself.

use crate::common::Lab;

#[test]
fn help_of_every_command() {
    let lab = Lab::new();
    let commands = [
        "",
        "reproduce",
        "run",
        "tune",
        "recommend",
        "import",
        "compare",
        "report",
        "plan",
        "calibrate",
        "workload",
        "workload list",
        "workload describe",
        "workload sample",
        "workload import",
        "systems",
        "env",
        "results",
        "results check",
        "results export",
        "results import",
        "slurm",
        "slurm render",
        "slurm submit",
        "completions",
        "man",
    ];
    for command in commands {
        let text = lab.run(&format!("{command} --help")).ok();
        let name = if command.is_empty() { "skewbench".to_owned() } else { command.replace(' ', "-") };
        insta::assert_snapshot!(format!("help-{name}"), text);
        assert!(lab.run(&format!("{command} -h")).ok().len() <= text.len());
    }
}

#[test]
fn version_and_environment() {
    let lab = Lab::new();
    assert_eq!(lab.run("--version").ok(), format!("skewbench {}\n", env!("CARGO_PKG_VERSION")));
    let env = lab.run("env --format json").json();
    assert_eq!(env[0]["skewbench"], env!("CARGO_PKG_VERSION"));
    assert!(env[0]["revision"].is_string() && env[0]["compiler"].is_string());
    assert!(lab.run("env").ok().contains("revision"));
}

#[test]
fn completions_name_every_command() {
    let lab = Lab::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = lab.run(&format!("completions {shell}")).ok();
        for command in ["reproduce", "calibrate", "compare", "workload", "results"] {
            assert!(text.contains(command), "{shell}: {command}");
        }
    }
    let manual = lab.run("man").ok();
    assert!(manual.starts_with(".ie") && manual.contains("reproduce") && manual.contains("Exit codes"));
}

#[test]
fn systems_in_every_format() {
    let lab = Lab::new();
    let systems = lab.run("systems --format json").json();
    let names: Vec<&str> = systems.as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"libra") && names.contains(&"ulysses"));
    assert_eq!(lab.run("systems --format jsonl").ok().lines().count(), names.len());
    assert_eq!(lab.run("systems --format csv").ok().lines().count(), names.len() + 1);
    let human = lab.run("systems").ok();
    assert!(names.iter().all(|name| human.contains(name)), "{human}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for line in ["systems --format json", "man", "completions zsh", "workload list"] {
        let lab = Lab::new();
        let mut command = lab.command();
        command.args(line.split(' ')).stdout(std::process::Stdio::piped());
        let mut process = command.spawn().unwrap();
        drop(process.stdout.take());
        assert_eq!(process.wait().unwrap().code(), Some(0), "{line}");
    }
}
