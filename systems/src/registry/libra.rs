use skewbench_plan::Scope;

use super::PlannerEntry;
use crate::planners::libra::{Libra, LibraOptions};
use crate::{Accepts, DefaultValue, OptionSpec};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "tau",
        alias: None,
        default: DefaultValue::Number(0.03),
        accepts: Accepts::Number { min: 0.0, max: 10.0 },
        summary: "tolerance: no worker is filled above (1 + tau) x the mean load while another has room",
    },
    OptionSpec {
        name: "pieces",
        alias: Some("M"),
        default: DefaultValue::Integer(4),
        accepts: Accepts::Integer { min: 1, max: 1024 },
        summary: "head pieces whose transfers overlap the attention of their neighbours",
    },
    OptionSpec {
        name: "block",
        alias: Some("B"),
        default: DefaultValue::Text("auto"),
        accepts: Accepts::IntegerOrAuto { min: 1, max: 1 << 31 },
        summary: "query tokens of a tile; auto = 4096 below windows of 512K tokens, else 8192",
    },
    OptionSpec {
        name: "head_shards",
        alias: Some("H"),
        default: DefaultValue::Integer(1),
        accepts: Accepts::Integer { min: 1, max: 1024 },
        summary: "head shards of a tile; 1 = heads are not split",
    },
    OptionSpec {
        name: "resend",
        alias: None,
        default: DefaultValue::Flag(true),
        accepts: Accepts::Flag,
        summary: "the backward sends Q, K, V, O and LSE again; false keeps them on the workers",
    },
];

/// Registry entry of the planner of Libra.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "tap",
    summary: "query blocks x head shards placed over a pool by load, then by communication, in overlapped head pieces",
    source: "arXiv 2607.23250, tiled attention pooling and pipeliner",
    scope: Scope::Pool,
    options: OPTIONS,
    build: |options| Ok(Box::new(Libra::new(options.section::<LibraOptions>(OPTIONS)?)?)),
};

/// Registry entry of the same planner over one global pool.
pub const GLOBAL: PlannerEntry = PlannerEntry {
    name: "tap-global",
    summary: "query blocks x head shards placed over all ranks of a wave, in overlapped head pieces",
    source: "arXiv 2607.23250, its emulation of DistCA by one cluster-wide pool",
    scope: Scope::Wave,
    options: OPTIONS,
    build: |options| Ok(Box::new(Libra::global(options.section::<LibraOptions>(OPTIONS)?)?)),
};

#[cfg(test)]
mod tests {
    use super::{LibraOptions, OPTIONS};
    use crate::Options;

    #[test]
    fn defaults_are_those_of_the_planner() {
        let options: LibraOptions = Options::default().section(OPTIONS).expect("defaults are accepted");
        assert_eq!(options, LibraOptions::default());
    }
}
