use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde_json::{Map, Value};
use skewbench_config::{ConfigError, hint};
use skewbench_plan::Scope;
use skewbench_systems::placements::arrival;
use skewbench_systems::planners::ulysses;
use skewbench_systems::registry::{self, Description, Parts, PlacementPart, PlannerPart, RegistryError, System};
use skewbench_systems::{OptionSpec, Options};

use crate::manifest::{External, Key, Record, Shared, is_name};
use crate::placement::ExternalPlacement;
use crate::planner::ExternalPlanner;
use crate::protocol::Hello;
use crate::session::Session;
use crate::{CatalogueError, Ledger, options};

/// Folder of manifests below the working directory.
const FOLDER: &str = "external";

/// All systems that names can mean: built-in ones, and programs named by manifests. Clones share what was found.
#[derive(Clone, Debug)]
pub struct Catalogue {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Where names are looked for; nowhere for what a run recorded.
    folder: Option<PathBuf>,
    found: Mutex<BTreeMap<String, Shared>>,
}

/// A manifest in the folder, as listings show it; the program is not started for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listed {
    /// Name of the system.
    pub name: String,
    /// One line, or why the manifest cannot be used.
    pub summary: String,
    /// The command.
    pub command: Vec<String>,
}

impl Default for Catalogue {
    fn default() -> Self {
        Self::at(FOLDER)
    }
}

impl Catalogue {
    /// A catalogue that looks for manifests in `folder`.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { inner: Arc::new(Inner { folder: Some(folder.into()), found: Mutex::default() }) }
    }

    /// A catalogue of what a run recorded: systems can be described, not started.
    ///
    /// # Errors
    /// When a record is not one that a run writes.
    pub fn recorded(records: Vec<Record>) -> Result<Self, CatalogueError> {
        let found = records
            .into_iter()
            .map(|record| Ok((record.name.clone(), Arc::new(External::recorded(record)?))))
            .collect::<Result<_, ConfigError>>()?;
        Ok(Self { inner: Arc::new(Inner { folder: None, found: Mutex::new(found) }) })
    }

    /// The name of what a user named: a system, a pair, or either with paths of manifests in it.
    ///
    /// # Errors
    /// Unknown names, manifests that cannot be used, programs asked for what they do not do.
    pub fn admit(&self, text: &str) -> Result<String, CatalogueError> {
        let halves = if is_path(text) && Path::new(text).is_file() {
            vec![text]
        } else if let Some(end) = text.find(".toml+") {
            vec![&text[..end + 5], &text[end + 6..]]
        } else if is_path(text) {
            text.split_once('+').map_or_else(|| vec![text], |(planner, placement)| vec![planner, placement])
        } else {
            vec![text]
        };
        let names: Vec<String> = halves
            .into_iter()
            .map(|half| if is_path(half) { self.open(half) } else { Ok(half.to_owned()) })
            .collect::<Result<_, _>>()?;
        let name = names.join("+");
        self.parts(&name, 0)?;
        Ok(name)
    }

    /// Describes a system or pair.
    ///
    /// # Errors
    /// As [`admit`](Self::admit); paths are not looked for.
    pub fn describe(&self, name: &str) -> Result<Description, CatalogueError> {
        Ok(self.parts(name, 0)?.0.describe(name))
    }

    /// Makes a system or pair with the given options. Programs get `seed`.
    ///
    /// # Errors
    /// As [`describe`](Self::describe), and unknown options or refused values.
    pub fn system(&self, name: &str, given: &Map<String, Value>, seed: u64) -> Result<System, CatalogueError> {
        let (parts, externals) = self.parts(name, seed)?;
        let mut all = Map::new();
        for external in &externals {
            all.extend(external.options.clone());
        }
        // An option given by its symbol replaces what a manifest gives by name.
        for spec in parts.options() {
            if spec.alias.is_some_and(|alias| given.contains_key(alias)) {
                all.remove(spec.name);
            }
        }
        all.extend(given.clone());
        if externals.iter().any(|external| external.hello().is_err()) {
            // What the program would accept is not known, and it will not run.
            all.retain(|key, _| {
                parts.options().iter().any(|spec| spec.name == key || spec.alias == Some(key.as_str()))
            });
        }
        Ok(parts.system(name, &all)?)
    }

    /// What tells the programs of a system from other versions of them; nothing for built-in systems.
    pub fn keys(&self, name: &str) -> Vec<Key> {
        self.externals(name).iter().map(|external| external.key()).collect()
    }

    /// What a run must remember of the programs of a system.
    pub fn records(&self, name: &str) -> Vec<Record> {
        self.externals(name).iter().map(|external| external.record()).collect()
    }

    /// What all programs did since the ledger was last taken.
    pub fn take_ledger(&self) -> Ledger {
        let found = self.inner.found.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = Ledger::default();
        found.values().for_each(|external| all.join(external.take_ledger()));
        all
    }

    /// The manifests in the folder, by name.
    pub fn listed(&self) -> Vec<Listed> {
        let Some(entries) = self.inner.folder.as_ref().and_then(|folder| folder.read_dir().ok()) else {
            return Vec::new();
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut paths: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
        paths.sort();
        let listed = |path: PathBuf| match External::load(&path) {
            Ok(external) => Listed {
                name: external.name.clone(),
                summary: external.summary().to_owned(),
                command: external.command().to_vec(),
            },
            Err(error) => {
                let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
                Listed { name, summary: format!("cannot be used: {error}"), command: Vec::new() }
            }
        };
        paths.into_iter().map(listed).collect()
    }

    /// Reads the manifest at a path, or finds what a run recorded under it.
    fn open(&self, path: &str) -> Result<String, CatalogueError> {
        let mut found = self.inner.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = found.values().find(|external| external.is_named_by(path)) {
            return Ok(known.name.clone());
        }
        let refused = |what: String| ConfigError { file: path.to_owned(), line: None, what };
        if self.inner.folder.is_none() {
            return Err(refused("is not one of the external systems that the run recorded".to_owned()).into());
        }
        let external = External::load(Path::new(path))?;
        let name = external.name.clone();
        let known = found.entry(name.clone()).or_insert_with(|| Arc::new(external));
        if !known.is_manifest(Path::new(path)) {
            return Err(refused(format!("another manifest of the name {name} is in use already; rename one")).into());
        }
        known.add_path(path);
        Ok(name)
    }

    fn find(&self, name: &str) -> Result<Option<Shared>, ConfigError> {
        let mut found = self.inner.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = found.get(name) {
            return Ok(Some(known.clone()));
        }
        let path = self.inner.folder.as_ref().map(|folder| folder.join(format!("{name}.toml")));
        let Some(path) = path.filter(|path| is_name(name) && path.exists()) else { return Ok(None) };
        let external = Arc::new(External::load(&path)?);
        found.insert(name.to_owned(), external.clone());
        Ok(Some(external))
    }

    fn externals(&self, name: &str) -> Vec<Shared> {
        let Ok((_, externals)) = self.parts(name, 0) else { return Vec::new() };
        externals
    }

    /// What a name is made of, and the programs among it.
    fn parts(&self, name: &str, seed: u64) -> Result<(Parts, Vec<Shared>), CatalogueError> {
        let unknown = match registry::parts(name) {
            Ok(parts) => return Ok((parts, Vec::new())),
            Err(unknown) => unknown,
        };
        let Some((planner, placement)) = name.split_once('+') else {
            let Some(external) = self.find(name)? else { return Err(self.also(unknown).into()) };
            return Ok((alone(&external, seed), vec![external]));
        };
        let built_in = (
            registry::PLANNERS.iter().find(|p| p.name == planner),
            registry::PLACEMENTS.iter().find(|p| p.name == placement),
        );
        let half = |kind, wanted: &str, known: Vec<&str>| RegistryError::Half {
            kind,
            name: wanted.to_owned(),
            pair: name.to_owned(),
            hint: hint(wanted, known.iter().copied()),
            known: known.join(", "),
        };
        let mut externals: Vec<Shared> = Vec::new();
        let planner_part = match built_in.0 {
            Some(entry) => entry.into(),
            None => {
                let known = || registry::PLANNERS.iter().map(|p| p.name).collect();
                let external = self.find(planner)?.ok_or_else(|| self.also(half("planner", planner, known())))?;
                if external.hello().is_ok_and(|hello| !hello.plans) {
                    let remedy = format!("name it as a placement, for example ulysses+{planner}");
                    return Err(CatalogueError::Role { name: planner.to_owned(), what: "plan", remedy });
                }
                externals.push(external.clone());
                planner_of(&external, seed)
            }
        };
        let placement_part = match built_in.1 {
            Some(entry) => entry.into(),
            None => {
                let known = || registry::PLACEMENTS.iter().map(|p| p.name).collect();
                let external = self.find(placement)?.ok_or_else(|| self.also(half("placement", placement, known())))?;
                if external.hello().is_ok_and(|hello| !hello.places) {
                    let remedy = format!("name it as a planner, for example {placement}+vrsp");
                    return Err(CatalogueError::Role { name: placement.to_owned(), what: "place", remedy });
                }
                let mut part = placement_of(&external, seed);
                if externals.iter().any(|other| other.name == external.name) {
                    // Its options are there already, as those of the planner.
                    part.options.clear();
                } else {
                    externals.push(external);
                }
                part
            }
        };
        let parts = Parts { planner: planner_part, placement: placement_part, named: None };
        let mut seen = BTreeSet::new();
        if let Some(twice) = parts.options().iter().find(|spec| !seen.insert(spec.name)) {
            let what = format!("both halves have an option {}; rename that of the external system", twice.name);
            return Err(ConfigError { file: name.to_owned(), line: None, what }.into());
        }
        Ok((parts, externals))
    }

    /// An error about an unknown name that lists the manifests too.
    fn also(&self, error: RegistryError) -> RegistryError {
        let manifests: Vec<String> = self.listed().into_iter().map(|listed| listed.name).collect();
        let names = || manifests.iter().map(String::as_str);
        let add = |known: String| std::iter::once(known.as_str()).chain(names()).collect::<Vec<_>>().join(", ");
        let near = |known: &str, name: &str| hint(name, known.split(", ").chain(names()));
        match error {
            RegistryError::System { name, known, .. } => {
                RegistryError::System { hint: near(&known, &name), name, known: add(known) }
            }
            RegistryError::Half { kind, name, pair, known, .. } => {
                RegistryError::Half { kind, pair, hint: near(&known, &name), name, known: add(known) }
            }
            other => other,
        }
    }
}

fn is_path(text: &str) -> bool {
    text.ends_with(".toml")
}

/// Declared options; none of a program that said no hello.
fn specs_of(external: &External) -> Vec<OptionSpec> {
    external.hello().ok().and_then(|hello| options::specs(&hello.options).ok()).unwrap_or_default()
}

/// A session with the values of the options that the program declares.
fn session(external: &Shared, seed: u64, options: &Options) -> Arc<Session> {
    let declared = external.hello().map_or(&[][..], |hello| &hello.options);
    let value = |name: &String| Some((name.clone(), options.values().get(name)?.clone()));
    let values = declared.iter().filter_map(|option| value(&option.name)).collect();
    Arc::new(Session::new(external.clone(), seed, values))
}

fn planner_of(external: &Shared, seed: u64) -> PlannerPart {
    let hello = external.hello().ok();
    let scope = hello.map_or(Scope::Pool, |hello| hello.scope.into());
    let load_bound = hello.and_then(|hello| hello.load_bound);
    let made = external.clone();
    PlannerPart {
        name: external.name.clone(),
        summary: external.summary().to_owned(),
        source: external.full_source(),
        scope,
        options: specs_of(external),
        build: Arc::new(move |options| {
            Ok(Box::new(ExternalPlanner { session: session(&made, seed, options), scope, load_bound }))
        }),
    }
}

fn placement_of(external: &Shared, seed: u64) -> PlacementPart {
    let made = external.clone();
    PlacementPart {
        name: external.name.clone(),
        summary: external.summary().to_owned(),
        source: external.full_source(),
        stateful: false,
        options: specs_of(external),
        build: Arc::new(move |options| Ok(Box::new(ExternalPlacement { session: session(&made, seed, options) }))),
    }
}

/// The system that a program is by itself: what it does not do is done by Ulysses, and in loader order.
fn alone(external: &Shared, seed: u64) -> Parts {
    let does = |what: fn(&Hello) -> bool| external.hello().is_ok_and(what);
    let plans = external.hello().is_err() || does(|hello| hello.plans);
    let planner = if plans { planner_of(external, seed) } else { (&ulysses::ENTRY).into() };
    let mut placement =
        if does(|hello| hello.places) { placement_of(external, seed) } else { (&arrival::ENTRY).into() };
    if plans && does(|hello| hello.places) {
        placement.options.clear();
    }
    Parts { planner, placement, named: Some((external.summary().to_owned(), external.full_source())) }
}
