use std::collections::BTreeSet;

use super::{BatchError, Header, Image, Interfaces, Name, Names, Path, TimeLimit, shell_word};

/// What Slurm's directives begin with.
pub(super) const DIRECTIVE: &str = "#SBATCH";
/// Line of a template that is replaced: options of `srun`.
const LAUNCH: &str = "launch=(";
/// Line of a template that is replaced: the program, and what runs it.
const PROGRAM: &str = "program=(";
/// The program where none is given, as it is called in a container.
const DEFAULT_PROGRAM: &str = "skewbench";
/// Letters of options that Slurm also knows by name.
const LETTERS: [(char, &str); 12] = [
    ('A', "account"),
    ('G', "gpus"),
    ('J', "job-name"),
    ('N', "nodes"),
    ('a', "array"),
    ('c', "cpus-per-task"),
    ('e', "error"),
    ('n', "ntasks"),
    ('o', "output"),
    ('p', "partition"),
    ('q', "qos"),
    ('t', "time"),
];

/// How a container is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Container {
    /// `apptainer exec --nv` in every task.
    Apptainer(Image),
    /// `--container-image` of `srun`: Enroot, through the Pyxis plugin.
    Pyxis(Image),
}

/// The option of the scripts for cards.
const GPUS: &str = "gpus-per-node";

/// What a script is filled with; what is absent stays as the template or the site's header has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Account that is charged.
    pub account: Option<Name>,
    /// Partitions.
    pub partition: Option<Names>,
    /// Quality of service.
    pub qos: Option<Name>,
    /// Name of the job.
    pub job_name: Option<Name>,
    /// Nodes.
    pub nodes: Option<u32>,
    /// Processors of a task.
    pub cpus_per_task: Option<u32>,
    /// Cards of a node.
    pub gpus_per_node: Option<u32>,
    /// Time limit.
    pub time: Option<TimeLimit>,
    /// Tasks of a job array.
    pub array_size: Option<u32>,
    /// Tasks of it that run at once.
    pub array_limit: Option<u32>,
    /// Container.
    pub container: Option<Container>,
    /// Folders that the container sees, under their own names.
    pub mounts: Vec<Path>,
    /// Network interfaces of NCCL.
    pub nccl_interface: Option<Interfaces>,
    /// The program.
    pub program: Option<Path>,
    /// The site's header.
    pub header: Header,
}

/// Fills a template. Directives of the settings replace those of the site's header, which replace those of the template.
///
/// # Errors
/// A setting that the template has no place for.
pub fn render(template: &str, settings: &Settings) -> Result<String, BatchError> {
    let given = settings.directives(template)?;
    let mut own: BTreeSet<String> = given.iter().flat_map(|line| options(line)).collect();
    own.extend(settings.header.directives.iter().flat_map(|line| options(line)));
    // Slurm has several options for cards, and refuses most jobs that use two of them.
    let other = settings
        .header
        .directives
        .iter()
        .find(|line| asks_for_cards(line) && !options(line).contains(&GPUS.to_owned()));
    if let Some(other) = other {
        if settings.gpus_per_node.is_some() {
            let what = format!(
                "the site's header asks for cards with {other:?}; leave the number of cards a node to it, or out of it"
            );
            return Err(BatchError::Template(what));
        }
        own.insert(GPUS.to_owned());
    }

    let mut lines = template.lines();
    let shell = lines.next().filter(|line| line.starts_with("#!")).unwrap_or("#!/bin/bash");
    let (directives, body): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with(DIRECTIVE));
    let mut script = vec![shell.to_owned()];
    // The last of several directives counts.
    script.extend(settings.header.directives.iter().cloned());
    let kept = directives.into_iter().filter(|line| !options(line).iter().any(|option| own.contains(option)));
    script.extend(kept.map(str::to_owned));
    script.extend(given);

    let is_comment = |line: &&&str| line.starts_with('#') || line.trim().is_empty();
    let comments = body.iter().take_while(is_comment).count();
    let (comments, commands) = body.split_at(comments);
    script.extend(comments.iter().map(|line| (*line).to_owned()));
    script.extend(settings.header.commands.iter().cloned());
    let mut missing = settings.replacements();
    for line in commands {
        match missing.iter().position(|(start, _)| line.starts_with(start)) {
            Some(at) => script.extend(missing.remove(at).1),
            None => script.push((*line).to_owned()),
        }
    }
    if let Some((start, _)) = missing.first() {
        let what =
            format!("the script has no line {start}...), which the program, container and NCCL settings go into");
        return Err(BatchError::Template(what));
    }
    script.push(String::new());
    Ok(script.join("\n"))
}

impl Settings {
    fn directives(&self, template: &str) -> Result<Vec<String>, BatchError> {
        let is_array = template.lines().flat_map(options).any(|option| option == "array");
        let refused = |what: &str| Err(BatchError::Template(what.to_owned()));
        if !is_array && (self.array_size.is_some() || self.array_limit.is_some()) {
            return refused("the script is of no job array; sweep is");
        }
        if is_array && self.nodes.is_some() {
            return refused("tasks of a job array have a node each; give the size of the array");
        }
        let array = match (self.array_size, self.array_limit) {
            (None, None) => None,
            (None, Some(_)) => return refused("a limit of tasks at once needs the size of the array"),
            (Some(size), None) => Some(format!("0-{}", size.saturating_sub(1))),
            (Some(size), Some(limit)) => Some(format!("0-{}%{limit}", size.saturating_sub(1))),
        };
        let number = |value: Option<u32>| value.map(|v| v.to_string());
        let all = [
            ("job-name", self.job_name.as_ref().map(Name::to_string)),
            ("account", self.account.as_ref().map(Name::to_string)),
            ("partition", self.partition.as_ref().map(Names::to_string)),
            ("qos", self.qos.as_ref().map(Name::to_string)),
            ("nodes", number(self.nodes)),
            ("cpus-per-task", number(self.cpus_per_task)),
            (GPUS, number(self.gpus_per_node)),
            ("time", self.time.as_ref().map(TimeLimit::to_string)),
            ("array", array),
        ];
        Ok(all.into_iter().filter_map(|(name, value)| Some(format!("{DIRECTIVE} --{name}={}", value?))).collect())
    }

    /// What stands in place of lines of the template, by what these begin with.
    fn replacements(&self) -> Vec<(&'static str, Vec<String>)> {
        let mut replaced = Vec::new();
        let mounts = self.mounts.iter().map(|path| format!("{path}:{path}"));
        if let Some(Container::Pyxis(image)) = &self.container {
            let mut words = vec![format!("--container-image={image}")];
            let mounts: Vec<String> = mounts.clone().collect();
            if !mounts.is_empty() {
                words.push(format!("--container-mounts={}", mounts.join(",")));
            }
            replaced.push((LAUNCH, vec![array(LAUNCH, &words)]));
        }
        let program = self.program.as_ref().map(Path::to_string);
        let mut words = Vec::new();
        match &self.container {
            Some(Container::Apptainer(image)) => {
                words.extend(["apptainer", "exec", "--nv"].map(str::to_owned));
                words.extend(mounts.flat_map(|mount| ["--bind".to_owned(), mount]));
                words.push(image.to_string());
                words.push(program.unwrap_or_else(|| DEFAULT_PROGRAM.to_owned()));
            }
            Some(Container::Pyxis(_)) => words.push(program.unwrap_or_else(|| DEFAULT_PROGRAM.to_owned())),
            None => words.extend(program),
        }
        let mut lines = Vec::new();
        if let Some(interfaces) = &self.nccl_interface {
            lines.push(format!("export NCCL_SOCKET_IFNAME={}", shell_word(&interfaces.to_string())));
        }
        match (lines.is_empty(), words.is_empty()) {
            (true, true) => return replaced,
            (_, false) => lines.push(array(PROGRAM, &words)),
            (false, true) => lines.push(format!("{PROGRAM}\"${{SKEWBENCH:-{DEFAULT_PROGRAM}}}\")")),
        }
        replaced.push((PROGRAM, lines));
        replaced
    }
}

fn array(start: &str, words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    format!("{start}{})", words.join(" "))
}

/// True for a directive that asks for cards, by whichever of Slurm's options.
fn asks_for_cards(line: &str) -> bool {
    let is = |option: &String| {
        option == "gpus" || option.starts_with("gpus-per-") || option == "gres" && line.contains("gpu")
    };
    options(line).iter().any(is)
}

/// Names of the options in a directive; none for another line.
fn options(line: &str) -> Vec<String> {
    let Some(rest) = line.strip_prefix(DIRECTIVE) else { return Vec::new() };
    let words = rest.split_whitespace().take_while(|word| !word.starts_with('#'));
    words
        .filter_map(|word| match word.strip_prefix("--") {
            Some(long) => Some(long.split('=').next().unwrap_or(long).to_owned()),
            None => {
                let letter = word.strip_prefix('-')?.chars().next()?;
                LETTERS.iter().find(|(l, _)| *l == letter).map(|(_, name)| (*name).to_owned())
            }
        })
        .collect()
}
