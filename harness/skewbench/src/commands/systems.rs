//! `skewbench systems`.

use serde_json::{Map, Value, json};
use skewbench_external::{Catalogue, Listed};
use skewbench_systems::registry;

use super::output;
use crate::cli::Format;
use crate::failure::Failure;

/// Lists the named systems, in JSON with all options, and the manifests of external ones.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(format: Format) -> Result<(), Failure> {
    let rows: Vec<Map<String, Value>> = registry::systems()
        .iter()
        .map(|system| {
            let value = serde_json::to_value(system).unwrap_or_default();
            match (format, value) {
                (Format::Json | Format::Jsonl, Value::Object(map)) => map,
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
    let externals = Catalogue::default().listed();
    let rows: Vec<Map<String, Value>> =
        rows.into_iter().chain(externals.into_iter().map(|e| external(e, format))).collect();
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

/// A manifest of the folder `external`. Its program is not started for a listing, so what it does is not said.
fn external(listed: Listed, format: Format) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("name".into(), json!(listed.name));
    if matches!(format, Format::Json | Format::Jsonl) {
        map.insert("summary".into(), json!(listed.summary));
        map.insert("command".into(), json!(listed.command));
    } else {
        map.insert("placement".into(), json!("external"));
        map.insert("planner".into(), json!("external"));
        map.insert("idea".into(), json!(listed.summary));
        map.insert("options".into(), json!(listed.command.join(" ")));
    }
    map
}
