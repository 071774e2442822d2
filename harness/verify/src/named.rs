use serde_json::{Map, Value};
use skewbench_plan::SystemError;
use skewbench_systems::OptionSpec;
use skewbench_systems::registry::{self, RegistryError, System};

use crate::{Backend, Case, Ending, Finding, Subject, shrink, verify_case};

/// Cases that are tried to find a smaller one that fails too.
const SHRINKING: usize = 300;
/// Optimizer steps of a case for placements that keep state, and for others.
const STEPS: [u32; 2] = [5, 1];

/// Where systems come from by name or pair.
pub trait Systems {
    /// Options of a system.
    ///
    /// # Errors
    /// Why there is no such system.
    fn options(&self, system: &str) -> Result<Vec<OptionSpec>, String>;

    /// A system with options and a seed; the inner error when it refuses the options.
    ///
    /// # Errors
    /// Why there is no such system.
    fn build(
        &self,
        system: &str,
        options: &Map<String, Value>,
        seed: u64,
    ) -> Result<Result<System, SystemError>, String>;
}

/// The systems that are built in.
#[derive(Clone, Copy, Debug)]
pub struct Registry;

impl Systems for Registry {
    fn options(&self, system: &str) -> Result<Vec<OptionSpec>, String> {
        Ok(registry::describe(system).map_err(|e| e.to_string())?.options)
    }

    fn build(
        &self,
        system: &str,
        options: &Map<String, Value>,
        _seed: u64,
    ) -> Result<Result<System, SystemError>, String> {
        match registry::system(system, options) {
            Ok(built) => Ok(Ok(built)),
            Err(RegistryError::Value { source, .. }) => Ok(Err(source)),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn draw(systems: &dyn Systems, system: &str, number: u64) -> Result<Case, String> {
    let specs = systems.options(system)?;
    // A system that refuses its defaults says so when the case runs.
    let stateful = systems.build(system, &Map::new(), number)?.is_ok_and(|built| built.placement().stateful());
    Ok(Case::draw(number, &specs, STEPS[usize::from(!stateful)]))
}

fn verify_named(systems: &dyn Systems, system: &str, case: &Case, backend: Backend<'_>) -> Result<Ending, String> {
    Ok(match systems.build(system, &case.options, case.seed)? {
        Ok(built) => {
            let subject = Subject { placement: built.placement(), planner: built.planner(), pool: built.pool() };
            verify_case(subject, case, backend)
        }
        Err(refused) => Ending::Refused(refused),
    })
}

/// What came of the case of one number.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The case that ran.
    pub case: Case,
    /// What it ended with.
    pub ending: Ending,
    /// Options were drawn for it.
    pub drew_options: bool,
    /// Why the system refused the options that were drawn, if it did; the case then ran without some of them.
    pub refused: Option<SystemError>,
}

/// Draws the case of a number and runs it; where the system refuses options that were drawn, without these.
///
/// # Errors
/// When there is no such system.
pub fn verify_number(
    systems: &dyn Systems,
    system: &str,
    number: u64,
    backend: Backend<'_>,
) -> Result<Outcome, String> {
    let drawn = draw(systems, system, number)?;
    let drew_options = !drawn.options.is_empty();
    let run = |case: &Case| verify_named(systems, system, case, backend);
    let ending = run(&drawn)?;
    let refused = match &ending {
        Ending::Refused(why) if drew_options => Some(why.clone()),
        _ => None,
    };
    let (case, ending) = with_fewer_options(drawn, ending, run)?;
    Ok(Outcome { case, ending, drew_options, refused })
}

/// Drops options that the system refuses, one by one: the one that it names; else the first without which the case runs;
/// else the first.
fn with_fewer_options(
    mut case: Case,
    mut ending: Ending,
    run: impl Fn(&Case) -> Result<Ending, String>,
) -> Result<(Case, Ending), String> {
    while let Ending::Refused(why) = &ending {
        let named = match why {
            SystemError::Option { option, .. } => Some(*option),
            _ => None,
        };
        let names: Vec<String> = match named.filter(|option| case.options.contains_key(*option)) {
            Some(option) => vec![option.to_owned()],
            None => case.options.keys().cloned().collect(),
        };
        let mut next = None;
        for name in names {
            let mut without = case.clone();
            without.options.remove(&name);
            let ending = run(&without)?;
            let runs = !matches!(ending, Ending::Refused(_));
            if runs || next.is_none() {
                next = Some((without, ending));
            }
            if runs {
                break;
            }
        }
        match next {
            Some(smaller) => (case, ending) = smaller,
            None => break,
        }
    }
    Ok((case, ending))
}

/// The smallest case that can be found from a wrong one that is wrong too, with what is wrong in it.
pub fn smallest_wrong(
    systems: &dyn Systems,
    system: &str,
    case: &Case,
    finding: Finding,
    backend: Backend<'_>,
) -> (Case, Finding) {
    let wrong = |case: &Case| match verify_named(systems, system, case, backend) {
        Ok(Ending::Wrong(finding)) => Some(finding),
        _ => None,
    };
    let smallest = shrink(case, SHRINKING, |case| wrong(case).is_some());
    let finding = wrong(&smallest).unwrap_or(finding);
    (smallest, finding)
}

/// Which options a right case ran with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conformed {
    /// Options were drawn for it.
    pub drew_options: bool,
    /// At least one option differed from its default when it ran.
    pub varied: bool,
}

/// Runs the case of this number through a built-in system.
///
/// # Errors
/// What is wrong, with the smallest case found and how to run it again; why the system refuses the case with its defaults.
pub fn conforms(system: &str, number: u64, backend: Backend<'_>) -> Result<Conformed, String> {
    let Outcome { case, ending, drew_options, .. } = verify_number(&Registry, system, number, backend)?;
    let again = format!("again: skewbench verify --system {system} --backend {} --case {number}", backend.name());
    match ending {
        Ending::Right(_) => {
            let specs = Registry.options(system)?;
            let differs = |spec: &OptionSpec| case.options.get(spec.name).is_some_and(|v| *v != spec.default.json());
            Ok(Conformed { drew_options, varied: specs.iter().any(differs) })
        }
        Ending::Refused(why) => Err(format!("{system} refuses a case with its default options: {why}\n{again}")),
        Ending::Wrong(finding) => {
            let (smallest, finding) = smallest_wrong(&Registry, system, &case, finding, backend);
            let case = serde_json::to_string(&smallest).map_err(|e| e.to_string())?;
            Err(format!("{system}: {finding}\nsmallest case found: {case}\n{again}"))
        }
    }
}

/// Stamps the conformance tests of systems, each against every backend: one line a system. All cases are right, and of
/// those with options a third at least runs with other values than the defaults.
///
/// ```
/// skewbench_verify::conformance! {
///     cases = 2;
///     ulysses: "ulysses",
/// }
/// ```
#[macro_export]
macro_rules! conformance {
    (cases = $cases:expr; $($module:ident: $name:expr),* $(,)?) => {
        $(mod $module {
            fn run(backend: $crate::Backend<'_>) {
                let case = |number| $crate::conforms($name, number, backend).unwrap_or_else(|wrong| panic!("{wrong}"));
                let cases: Vec<$crate::Conformed> = (0..$cases).map(case).collect();
                let drew = cases.iter().filter(|case| case.drew_options).count();
                let varied = cases.iter().filter(|case| case.varied).count();
                assert!(3 * varied >= drew, "{}: {drew} cases drew options, {varied} ran with other than defaults", $name);
            }

            #[test]
            fn cpu() {
                run($crate::Backend::Cpu);
            }

            #[test]
            fn sim() {
                run($crate::Backend::Sim);
            }
        })*
    };
}
