//! `skewbench env`.

use serde_json::{Map, Value, json};
use skewbench_cuda::CardInfo;
use skewbench_store::Host;

use super::output;
use crate::cli::Format;
use crate::failure::Failure;

/// Shows the binary and the machine.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(format: Format) -> Result<(), Failure> {
    let host = serde_json::to_value(Host::current()).map_err(Failure::internal)?;
    let mut all = Map::new();
    all.insert("skewbench".into(), json!(env!("CARGO_PKG_VERSION")));
    all.insert("revision".into(), json!(env!("SKEWBENCH_REVISION")));
    all.insert("dirty".into(), json!(env!("SKEWBENCH_DIRTY") == "true"));
    all.insert("compiler".into(), json!(env!("SKEWBENCH_RUSTC")));
    let card = CardInfo::read(0);
    all.insert("backends".into(), json!(if card.is_ok() { "sim, replay" } else { "sim" }));
    match card {
        Ok(card) => {
            let versions = format!("driver {}, CUDA {}, cuDNN {}", card.driver, card.cuda, card.cudnn);
            all.insert("card".into(), json!(format!("{} ({versions})", card.name)));
        }
        Err(missing) => {
            all.insert("card".into(), json!(format!("none: {missing}")));
        }
    }
    if let Value::Object(host) = host {
        all.extend(host);
    }
    let rows = if matches!(format, Format::Json | Format::Jsonl) {
        vec![all]
    } else {
        all.into_iter()
            .map(|(name, value)| [("name".to_owned(), json!(name)), ("value".to_owned(), value)].into_iter().collect())
            .collect()
    };
    output::records(&rows, format)
}
