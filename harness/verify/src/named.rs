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
    let built = systems.build(system, &Map::new(), number)?.map_err(|e| e.to_string())?;
    let stateless = !built.placement().stateful();
    Ok(Case::draw(number, &specs, STEPS[usize::from(stateless)]))
}

fn verify_named(systems: &dyn Systems, system: &str, case: &Case, backend: Backend) -> Result<Ending, String> {
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
    /// Why the system refused the options that were drawn, if it did; the case then ran with its defaults.
    pub refused: Option<SystemError>,
}

/// Draws the case of a number and runs it; where the system refuses the options that were drawn, with its defaults.
///
/// # Errors
/// When there is no such system.
pub fn verify_number(systems: &dyn Systems, system: &str, number: u64, backend: Backend) -> Result<Outcome, String> {
    let mut case = draw(systems, system, number)?;
    let mut ending = verify_named(systems, system, &case, backend)?;
    let mut refused = None;
    if let Ending::Refused(why) = &ending
        && !case.options.is_empty()
    {
        refused = Some(why.clone());
        case.options.clear();
        ending = verify_named(systems, system, &case, backend)?;
    }
    Ok(Outcome { case, ending, refused })
}

/// The smallest case that can be found from a wrong one that is wrong too, with what is wrong in it.
pub fn smallest_wrong(
    systems: &dyn Systems,
    system: &str,
    case: &Case,
    finding: Finding,
    backend: Backend,
) -> (Case, Finding) {
    let wrong = |case: &Case| match verify_named(systems, system, case, backend) {
        Ok(Ending::Wrong(finding)) => Some(finding),
        _ => None,
    };
    let smallest = shrink(case, SHRINKING, |case| wrong(case).is_some());
    let finding = wrong(&smallest).unwrap_or(finding);
    (smallest, finding)
}

/// What the case of this number ended with for a built-in system: `Ok(true)` when everything held, `Ok(false)` when the system refused it even with its default options.
///
/// # Errors
/// What is wrong, with the smallest case found and how to run it again.
pub fn conforms(system: &str, number: u64, backend: Backend) -> Result<bool, String> {
    let Outcome { case, ending, .. } = verify_number(&Registry, system, number, backend)?;
    match ending {
        Ending::Right(_) => Ok(true),
        Ending::Refused(_) => Ok(false),
        Ending::Wrong(finding) => {
            let (smallest, finding) = smallest_wrong(&Registry, system, &case, finding, backend);
            let case = serde_json::to_string(&smallest).map_err(|e| e.to_string())?;
            Err(format!(
                "{system}: {finding}\nsmallest case found: {case}\nagain: skewbench verify --system {system} --case {number}"
            ))
        }
    }
}

/// Stamps the conformance tests of systems, each against every backend: one line a system.
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
            fn run(backend: $crate::Backend) {
                let right = (0..$cases)
                    .map(|number| $crate::conforms($name, number, backend).unwrap_or_else(|wrong| panic!("{wrong}")))
                    .filter(|right| *right)
                    .count();
                assert_eq!(right as u64, $cases, "{} refused cases with its default options", $name);
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
