use skewbench_plan::Scope;

use super::PlannerEntry;
use crate::planners::calibrated::{Calibrated, CalibratedOptions};
use crate::{Accepts, DefaultValue, OptionSpec};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "balance",
        alias: None,
        default: DefaultValue::Text("time"),
        accepts: Accepts::Choice(&["time", "flops"]),
        summary: "what is balanced: predicted time of the launches of both passes, or pairs x query heads",
    },
    OptionSpec {
        name: "head_shards",
        alias: Some("H"),
        default: DefaultValue::Text("auto"),
        accepts: Accepts::IntegerOrAuto { min: 1, max: 1024 },
        summary: "head shards of work that moves; auto = one a KV head",
    },
    OptionSpec {
        name: "pieces",
        alias: Some("M"),
        default: DefaultValue::Integer(2),
        accepts: Accepts::Integer { min: 1, max: 64 },
        summary: "row pieces of work that moves, whose transfers overlap the attention of their neighbours",
    },
    OptionSpec {
        name: "split_masks",
        alias: None,
        default: DefaultValue::Flag(true),
        accepts: Accepts::Flag,
        summary: "squares, rectangles and other tiles in launches of their own where that is predicted to be faster",
    },
    OptionSpec {
        name: "count_transfers",
        alias: None,
        default: DefaultValue::Flag(true),
        accepts: Accepts::Flag,
        summary: "transfers that computation cannot hide count as load",
    },
    OptionSpec {
        name: "near_first",
        alias: None,
        default: DefaultValue::Flag(true),
        accepts: Accepts::Flag,
        summary: "surplus stays in its sequence and node where there is room",
    },
    OptionSpec {
        name: "relay",
        alias: None,
        default: DefaultValue::Flag(true),
        accepts: Accepts::Flag,
        summary: "keys for several workers of a node cross to it once, and their gradients are summed there before they leave",
    },
    OptionSpec {
        name: "send_first",
        alias: None,
        default: DefaultValue::Flag(true),
        accepts: Accepts::Flag,
        summary: "ranks that give work away send first and compute then, where computation slows transfers",
    },
    OptionSpec {
        name: "card_speeds",
        alias: None,
        default: DefaultValue::Flag(false),
        accepts: Accepts::Flag,
        summary: "slower cards get less, where the machine's cards differ; false plans for cards that are alike",
    },
    OptionSpec {
        name: "resend",
        alias: None,
        default: DefaultValue::Flag(false),
        accepts: Accepts::Flag,
        summary: "the backward sends Q, K, V, O and LSE again; false keeps them on the workers",
    },
    OptionSpec {
        name: "max_flops",
        alias: None,
        default: DefaultValue::Number(2.0),
        accepts: Accepts::Number { min: 1.0, max: 1e6 },
        summary: "no worker computes more than this many times the mean pairs x query heads, but for one granule",
    },
];

/// Registry entry of the planner that balances predicted time.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "tap-calibrated",
    summary: "own rows stay, surplus rows x KV heads are cut to the predicted time that other workers have left",
    source: "ours, after arXiv 2607.23250",
    scope: Scope::Pool,
    options: OPTIONS,
    build: |options| Ok(Box::new(Calibrated::new(options.section::<CalibratedOptions>(OPTIONS)?)?)),
};

#[cfg(test)]
mod tests {
    use super::{CalibratedOptions, OPTIONS};
    use crate::Options;

    #[test]
    fn defaults_are_those_of_the_planner() {
        let options: CalibratedOptions = Options::default().section(OPTIONS).expect("defaults are accepted");
        assert_eq!(options, CalibratedOptions::default());
    }
}
