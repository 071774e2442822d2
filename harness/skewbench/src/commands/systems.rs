//! `skewbench systems`.

use serde_json::{Map, json};
use skewbench_systems::registry;

use super::output;
use crate::cli::Format;
use crate::failure::Failure;

/// Lists the named systems; in JSON with all options.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(format: Format) -> Result<(), Failure> {
    let rows: Vec<Map<_, _>> = registry::systems()
        .iter()
        .map(|system| {
            let value = serde_json::to_value(system).unwrap_or_default();
            match (format, value) {
                (Format::Json | Format::Jsonl, serde_json::Value::Object(map)) => map,
                _ => {
                    let options: Vec<String> =
                        system.options.iter().map(|o| format!("{}={}", o.name, o.default.json())).collect();
                    let mut map = Map::new();
                    map.insert("name".into(), json!(system.name));
                    map.insert("placement".into(), json!(system.placement));
                    map.insert("planner".into(), json!(system.planner));
                    map.insert("idea".into(), json!(system.summary));
                    map.insert("options".into(), json!(options.join(" ")));
                    map
                }
            }
        })
        .collect();
    output::records(&rows, format)?;
    if format == Format::Human {
        let join = |names: Vec<&str>| names.join(", ");
        output::line(format!(
            "\nAny pair planner+placement is a system too. Planners: {}. Placements: {}.",
            join(registry::PLANNERS.iter().map(|p| p.name).collect()),
            join(registry::PLACEMENTS.iter().map(|p| p.name).collect())
        ))?;
    }
    Ok(())
}
