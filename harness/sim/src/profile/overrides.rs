use serde::{Deserialize, Serialize};

use super::{Bandwidth, Nic, Profile, Source, SourceKind, Transport};
use crate::ConfigError;

/// Keys of a profile that an experiment may set. A part that is changed counts as assumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Overrides {
    /// Of one port to the network, each way.
    pub network_bandwidth: Option<Bandwidth>,
    /// Share of it that transfers reach.
    pub network_efficiency: Option<f64>,
    /// Nanoseconds added to the latency of a call between nodes.
    pub network_latency_ns: Option<f64>,
    /// Who owns a port.
    pub nic: Option<Nic>,
    /// Bandwidth of a node's ports over that of its uplink.
    pub oversubscription: Option<f64>,
    /// What carries transfers.
    pub transport: Option<Transport>,
    /// Standard deviation of a card's time over the mean.
    pub card_relative_sd: Option<f64>,
    /// FLOPs a second of large bf16 products.
    pub gemm_flops_per_s: Option<f64>,
}

impl Overrides {
    /// The profile with these keys set.
    ///
    /// # Errors
    /// When a value is one that no machine can have; `file` is named in the message.
    pub fn apply(&self, profile: &Profile, file: &str) -> Result<Profile, ConfigError> {
        let mut changed = profile.clone();
        let network = &mut changed.network;
        let network_before = network.clone();
        set(&mut network.bandwidth, self.network_bandwidth);
        set(&mut network.efficiency, self.network_efficiency);
        set(&mut network.latency_ns, self.network_latency_ns);
        set(&mut network.nic, self.nic);
        set(&mut network.oversubscription, self.oversubscription);
        if *network != network_before {
            overridden(&mut network.source);
        }
        set(&mut changed.transport, self.transport);
        if self.card_relative_sd.is_some_and(|sd| sd != changed.card_speed.relative_sd) {
            overridden(&mut changed.card_speed.source);
        }
        set(&mut changed.card_speed.relative_sd, self.card_relative_sd);
        if self.gemm_flops_per_s.is_some_and(|rate| rate != changed.gemm.flops_per_s) {
            overridden(&mut changed.gemm.source);
        }
        set(&mut changed.gemm.flops_per_s, self.gemm_flops_per_s);
        changed.validate(file)?;
        Ok(changed)
    }
}

fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

fn overridden(source: &mut Source) {
    source.kind = SourceKind::Assumed;
    source.run = None;
    source.note = format!("set by the experiment; before: {}", source.note);
}
