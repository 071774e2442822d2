//! Batch scripts: filled with what users give, run by bash with stand-ins for Slurm's programs, refused where a value is not
//! what it should be.
#![cfg(unix)]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path as FilePath;
use std::process::{Command, Output};

use proptest::prelude::*;
use skewbench_cluster::batch::{
    BatchError, Container, Header, Image, Interfaces, Name, Names, Path, Settings, TEMPLATES, Template, TimeLimit,
    render, shell_word,
};

const HEADER: &str = "#!/bin/bash\n#SBATCH -A site\n#SBATCH --constraint=gpu --time=09:00:00\n# modules\nmodule() { echo \"module $*\"; }\nmodule load cuda\n";

fn all(template: &Template, container: bool) -> Settings {
    let array = template.name == "sweep";
    let image: Image = "/shared/images/skewbench-0.1.sif".parse().unwrap();
    Settings {
        account: Some("proj_42.a".parse().unwrap()),
        partition: Some("gpu,gpu-long".parse().unwrap()),
        qos: Some("high".parse().unwrap()),
        job_name: Some("mine".parse().unwrap()),
        nodes: (!array).then_some(3),
        cpus_per_task: Some(4),
        gpus_per_node: Some(2),
        time: Some("1-02:03:04".parse().unwrap()),
        array_size: array.then_some(200),
        array_limit: array.then_some(20),
        container: container.then_some(Container::Apptainer(image)),
        mounts: vec!["/shared/me".parse().unwrap()],
        nccl_interface: Some("=ib0,ib1".parse().unwrap()),
        program: Some("/shared/me/bin/skewbench".parse().unwrap()),
        header: Header::parse(HEADER).unwrap(),
    }
}

fn write_program(folder: &FilePath, name: &str, text: &str) {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs a script with `srun` and others that only print the words they were given, a line each.
fn run(script: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let print = "#!/bin/sh\nprintf '%s\\n' \"${0##*/}\" \"$@\" \"NCCL $NCCL_SOCKET_IFNAME\"\n";
    write_program(folder.path(), "srun", print);
    write_program(folder.path(), "scontrol", "#!/bin/sh\nprintf 'n1\\nn2\\n'\n");
    let file = folder.path().join("script");
    fs::write(&file, script).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let mut command = Command::new("bash");
    command.arg(&file).args(arguments).current_dir(folder.path()).env_clear().env("PATH", path);
    command.env("SLURM_JOB_NODELIST", "n[1-2]").env("SLURM_CPUS_PER_TASK", "4").output().unwrap()
}

#[track_caller]
fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap().lines().map(str::to_owned).collect()
}

/// True when bash, and shellcheck where it is installed, find nothing wrong.
fn lint(script: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script.sbatch");
    fs::write(&file, script).unwrap();
    let bash = Command::new("bash").arg("-n").arg(&file).output().unwrap();
    assert!(bash.status.success() && bash.stderr.is_empty(), "{script}\n{}", String::from_utf8_lossy(&bash.stderr));
    match Command::new("shellcheck").args(["--shell=bash"]).arg(&file).output() {
        Ok(found) => assert!(found.status.success(), "{script}\n{}", String::from_utf8_lossy(&found.stdout)),
        Err(_) => eprintln!("skipped: shellcheck is not installed"),
    }
}

#[test]
fn templates_stay_as_they_are_without_settings() {
    for template in &TEMPLATES {
        let script = render(template.text, &Settings::default()).unwrap();
        assert_eq!(script, template.text, "{}", template.name);
        lint(&script);
        // The program is found by its variable or on PATH.
        assert!(script.contains("\nlaunch=()\nprogram=(\"${SKEWBENCH:-skewbench}\")\n"), "{}", template.name);
    }
}

#[test]
fn everything_that_is_given_is_filled_in_once() {
    for template in &TEMPLATES {
        let script = render(template.text, &all(template, true)).unwrap();
        lint(&script);
        let count = |line: &str| script.lines().filter(|l| *l == line).count();
        let mut wanted = vec![
            "#SBATCH --job-name=mine",
            "#SBATCH --account=proj_42.a",
            "#SBATCH --partition=gpu,gpu-long",
            "#SBATCH --qos=high",
            "#SBATCH --cpus-per-task=4",
            "#SBATCH --gpus-per-node=2",
            "#SBATCH --time=1-02:03:04",
            "#SBATCH --constraint=gpu --time=09:00:00",
            "module load cuda",
            "export NCCL_SOCKET_IFNAME='=ib0,ib1'",
            "program=(apptainer exec --nv --bind /shared/me:/shared/me /shared/images/skewbench-0.1.sif /shared/me/bin/skewbench)",
        ];
        let array = template.name == "sweep";
        wanted.push(if array { "#SBATCH --array=0-199%20" } else { "#SBATCH --nodes=3" });
        wanted.iter().for_each(|line| assert_eq!(count(line), 1, "{}: {line}\n{script}", template.name));
        // A directive after another of the same option wins, and none is left of the template's.
        let of = |option: &str| script.lines().filter(|l| l.starts_with("#SBATCH") && l.contains(option)).count();
        assert_eq!((of("--job-name"), of("--time="), of("--account")), (1, 2, 1), "{script}");
        let position = |line: &str| script.lines().position(|l| l.starts_with(line)).unwrap();
        assert!(position("#SBATCH --constraint") < position("#SBATCH --time=1-"), "{script}");
        // Slurm reads no directive after the first command, and sites' commands are no friends of `set -u`.
        let last = script.lines().rfind(|l| l.starts_with("#SBATCH")).unwrap();
        assert!(position(last) < position("module()") && position("module load") < position("set -euo"), "{script}");
    }
}

#[test]
fn scripts_start_the_program_with_the_words_that_they_are_given() {
    // No shell reads arguments on the way.
    let odd = "a b;$(touch x)`id`'\"\\ *";
    for template in &TEMPLATES {
        let arguments: Vec<&str> = if template.arguments.len() == 2 { vec!["mine.toml", odd] } else { vec![odd] };
        let script = render(template.text, &all(template, true)).unwrap();
        let printed = lines(&run(&script, &[&arguments[..], &["--budget", "9"]].concat()));
        let has = |words: &[&str]| printed.windows(words.len()).any(|w| w == words);
        assert_eq!(printed[0], "module load cuda");
        assert!(has(&["NCCL =ib0,ib1"]), "{printed:?}");
        let run_by = ["apptainer", "exec", "--nv", "--bind", "/shared/me:/shared/me"];
        assert!(has(&[&run_by[..], &["/shared/images/skewbench-0.1.sif", "/shared/me/bin/skewbench"]].concat()));
        match template.name {
            "calibrate" => {
                for node in ["n1", "n2"] {
                    let out = format!("{odd}/{node}.json");
                    assert!(has(&["calibrate", "--resume", "--out", &out, "--budget", "9"]), "{printed:?}");
                    assert!(has(&["--out", &format!("{odd}/spread-{node}")]), "{printed:?}");
                    assert!(has(&[&format!("--nodelist={node}")]), "{printed:?}");
                }
            }
            _ => assert!(has(&["--out", odd]) && has(&["--budget", "9"]), "{printed:?}"),
        }
        let image: Image = "docker://registry.example/skewbench:0.1".parse().unwrap();
        let pyxis = Settings { container: Some(Container::Pyxis(image)), ..all(template, false) };
        let printed = lines(&run(&render(template.text, &pyxis).unwrap(), &arguments));
        let at = printed.iter().position(|w| w == "--container-image=docker://registry.example/skewbench:0.1").unwrap();
        assert_eq!(printed[at + 1..at + 3], ["--container-mounts=/shared/me:/shared/me", "/shared/me/bin/skewbench"]);
        // Without settings, the program of the environment.
        let printed = lines(&run(template.text, &arguments));
        assert!(printed.iter().any(|word| word == "skewbench"), "{printed:?}");
        // Too few arguments end the script before it starts anything.
        let nothing = run(template.text, &[]);
        assert!(!nothing.status.success() && nothing.stdout.is_empty(), "{}", template.name);
    }
}

#[test]
fn the_spread_of_nodes_is_reported_together() {
    let template = Template::named("calibrate").unwrap();
    // A program that makes the folders that it is told to.
    let script = template.text.replace("program=(", "program=(fake ");
    let folder = tempfile::tempdir().unwrap();
    write_program(
        folder.path(),
        "fake",
        "#!/bin/sh\nshift; echo \"$@\"; case $1-$PWD in run-*) mkdir -p \"$6\";; esac\n",
    );
    write_program(folder.path(), "srun", "#!/bin/sh\nwhile [ \"${1#--}\" != \"$1\" ]; do shift; done; exec \"$@\"\n");
    write_program(folder.path(), "scontrol", "#!/bin/sh\nprintf 'n1\\nn2\\n'\n");
    fs::write(folder.path().join("script"), script).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let output = Command::new("bash")
        .args(["script", "o u&t"])
        .current_dir(folder.path())
        .env("PATH", path)
        .env("SLURM_JOB_NODELIST", "n[1-2]")
        .output()
        .unwrap();
    let printed = lines(&output);
    assert_eq!(printed.last().unwrap(), "report o u&t/spread-n1 o u&t/spread-n2 --out o u&t/spread", "{printed:?}");
    assert_eq!(fs::metadata(folder.path().join("o u&t")).unwrap().permissions().mode() & 0o777, 0o700);
}

/// What no value may be, whatever it is for.
const HOSTILE: [&str; 16] = [
    "",
    " ",
    "a b",
    "a;id",
    "$(id)",
    "`id`",
    "a\nb",
    "a\n#SBATCH --uid=0",
    "a\0b",
    "'a'",
    "\"a\"",
    "a|b",
    "a>b",
    "--wrap=id",
    "\u{202e}a",
    "é",
];

#[test]
fn hostile_values_are_refused() {
    fn refused<T: std::str::FromStr<Err = BatchError> + std::fmt::Debug>(more: &[&str]) {
        let long = "x".repeat(2000);
        for value in HOSTILE.iter().chain(more).chain([&long.as_str()]) {
            let error = value.parse::<T>().unwrap_err().to_string();
            assert!(error.len() < 400 && !error.contains('\n'), "{error}");
        }
    }
    refused::<Name>(&["-a", "a/b", "a,b", "a=b", "a:b"]);
    refused::<Names>(&["-a", "a,,b", ",", "a,-b", "a/b"]);
    refused::<TimeLimit>(&["0", "0:00", "1h", "1:2:3:4", "-5", "1-", "1-2-3", "1:", "999999", "UNLIMITED"]);
    refused::<Interfaces>(&["^", "=", "ib0,", "a-name-that-is-too-long", "!ib0", "ib0=1"]);
    refused::<Image>(&["-x", "#x", "a&b", "a{b,c}", "~/x", "a?b", "a*", "=x"]);
    refused::<Path>(&["-x", "a:b", "a,b", "a#b", "~/x", "a\\b", "=x"]);
}

#[test]
fn values_that_slurm_takes_are_taken() {
    for time in ["90", "90:00", "01:30:00", "2-0", "2-12", "2-12:30", "2-12:30:15"] {
        assert_eq!(time.parse::<TimeLimit>().unwrap().to_string(), time);
    }
    for interfaces in ["ib0", "ib", "=ib0,ib1", "^docker0,lo", "^=docker0", "enp1s0f0"] {
        assert_eq!(interfaces.parse::<Interfaces>().unwrap().to_string(), interfaces);
    }
    for image in
        ["/a/b.sif", "docker://nvcr.io/nvidia/pytorch:25.01-py3", "nvcr.io#nvidia/pytorch:25.01", "a@sha256:0f"]
    {
        assert_eq!(image.parse::<Image>().unwrap().to_string(), image);
    }
}

#[test]
fn settings_without_a_place_are_refused() {
    let text = |name: &str| Template::named(name).unwrap().text;
    let says = |template: &str, settings: Settings, what: &str| {
        let error = render(template, &settings).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    };
    says(text("reproduce"), Settings { array_size: Some(4), ..Settings::default() }, "no job array");
    says(text("sweep"), Settings { nodes: Some(4), ..Settings::default() }, "size of the array");
    says(text("sweep"), Settings { array_limit: Some(4), ..Settings::default() }, "needs the size");
    let program: Path = "/x".parse().unwrap();
    says("#!/bin/bash\necho x\n", Settings { program: Some(program), ..Settings::default() }, "program=(");
    assert!(Template::named("repro").is_none());
}

#[test]
fn cards_are_asked_for_by_one_option() {
    let template = Template::named("compare").unwrap().text;
    let with = |header: &str| Settings { header: Header::parse(header).unwrap(), ..Settings::default() };
    for line in ["--gres=gpu:h200:4", "--gres gpu:4", "--gres=nvme,gpu=4", "--gpus=8", "-G 8", "--gpus-per-task=1"] {
        let settings = with(&format!("#SBATCH {line}\n"));
        let script = render(template, &settings).unwrap();
        assert!(script.contains(line) && !script.contains("gpus-per-node"), "{line}: {script}");
        let both = Settings { gpus_per_node: Some(2), ..settings };
        assert!(render(template, &both).unwrap_err().to_string().contains(line));
    }
    assert!(render(template, &with("#SBATCH --gres=nvme:1\n")).unwrap().contains("--gpus-per-node=8"));
    let same = Settings { gpus_per_node: Some(2), ..with("#SBATCH --gpus-per-node=4\n") };
    let script = render(template, &same).unwrap();
    assert!(script.contains("--gpus-per-node=2") && !script.contains("--gpus-per-node=8"));
}

#[test]
fn headers_that_cannot_stand_in_front_are_refused() {
    for (text, line, what) in [
        ("#!/bin/tcsh\n", 1, "bash"),
        ("echo x\n#!/bin/bash\n", 2, "bash"),
        ("#SBATCH -A x\n\nmodule load x\n#SBATCH -p y\n", 4, "move it up"),
        ("a\0b\n", 1, "control"),
        ("ok\n\u{1b}[31m\n", 2, "control"),
    ] {
        let error = Header::parse(text).unwrap_err().to_string();
        assert!(error.contains(&format!("line {line}")) && error.contains(what), "{text:?}: {error}");
    }
    assert!(Header::parse(&"# x\n".repeat(20_000)).is_err());
    assert_eq!(Header::parse("").unwrap(), Header::default());
    assert!(Header::parse("#SBATCH -A x\r\nmodule load y\r\n").is_ok());
}

proptest! {
    /// Whatever is accepted means nothing to bash.
    #[test]
    fn what_is_accepted_is_one_word(text in "[ -~\\n\u{e9}]{0,20}") {
        let accepted = [
            text.parse::<Name>().map(|v| v.to_string()).ok(),
            text.parse::<Names>().map(|v| v.to_string()).ok(),
            text.parse::<TimeLimit>().map(|v| v.to_string()).ok(),
            text.parse::<Path>().map(|v| v.to_string()).ok(),
        ];
        for value in accepted.into_iter().flatten() {
            prop_assert_eq!(shell_word(&value), value);
        }
    }
}

#[test]
fn words_reach_a_shell_as_they_are() {
    let words =
        ["", "a", "-x", "--a=b", "a b", "it's", "$(id)", "`id`", "\"", "\\", "a\nb", "*", "~", "#", "é", "=x", "!!"];
    let line: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    let script = format!("printf '%s\\0' {}", line.join(" "));
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.split_terminator('\0').collect::<Vec<_>>(), words);
}

/// What a stand-in for `sbatch` is asked and answers. One test, since it changes what the process finds on PATH.
#[test]
fn scripts_are_handed_to_sbatch() {
    let child = std::env::var_os("SUBMIT_TEST");
    if let Some(test_only) = child {
        let arguments = [OsString::from("o ut"), OsString::from("$(id)")];
        match skewbench_cluster::batch::submit("#!/bin/bash\ntrue\n", &arguments, test_only == "test") {
            Ok(done) => println!("done {done:?}"),
            Err(error) => println!("error {error}"),
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let submit = |body: Option<&str>, test_only: bool| {
        let _ = fs::remove_file(folder.path().join("sbatch"));
        if let Some(body) = body {
            write_program(folder.path(), "sbatch", &format!("#!/bin/bash\n{body}\n"));
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "scripts_are_handed_to_sbatch", "--nocapture"])
            .env("SUBMIT_TEST", if test_only { "test" } else { "" })
            .env("PATH", folder.path())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().find_map(|l| Some(l[l.find("done ").or(l.find("error "))?..].to_owned())).unwrap()
    };
    let seen = folder.path().join("seen");
    let keep = format!(
        "printf '%s|' \"${{@:1:1}}\" \"${{@:3}}\" > {0}; (while read -r l; do echo \"$l\"; done) < \"$2\" >> {0}",
        seen.display()
    );
    assert_eq!(submit(Some(&format!("{keep}; echo 4711")), false), "done Job(\"4711\")");
    assert_eq!(fs::read_to_string(&seen).unwrap(), "--parsable|o ut|$(id)|#!/bin/bash\ntrue\n");
    assert_eq!(submit(Some("echo '12;far'"), false), "done Job(\"12\")");
    let would = submit(Some("echo \"sbatch: Job 5 to start at noon, $2\" >&2"), true);
    assert_eq!(would, "done Would(\"sbatch: Job 5 to start at noon, --test-only\")");
    let refused = submit(Some("printf 'error: bad account\\n\\033[31m\\n' >&2; exit 1"), false);
    assert!(refused.starts_with("error sbatch ended with exit status: 1: error: bad account"), "{refused}");
    assert!(!refused.contains('\u{1b}'));
    assert!(submit(Some("echo 'Submitted batch job'"), false).contains("no job number"));
    assert!(submit(Some("for i in {1..9999}; do echo -n xxxxxxxxxx >&2; done; exit 3"), false).len() < 2200);
    assert!(submit(None, false).contains("sbatch not found on PATH"));
}
