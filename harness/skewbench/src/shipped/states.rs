use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use skewbench_store::stats::median;

/// What a card did before or after the samples of a wave, as NVML told: a row of `states.csv`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StateRow {
    /// System.
    pub system: String,
    /// As [`Sample::case`](super::Sample::case).
    pub case: String,
    /// Query heads.
    pub q_heads: u16,
    /// KV heads.
    pub kv_heads: u16,
    /// Transport.
    pub transport: String,
    /// Wave.
    pub wave: u32,
    /// Round of repetitions.
    pub round: u32,
    /// Card of the host.
    pub card: u32,
    /// Clock of the multiprocessors, MHz.
    pub sm_mhz: Option<u32>,
    /// Clock of the memory, MHz.
    pub memory_mhz: Option<u32>,
    /// Temperature of the processor, degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Power, milliwatts.
    pub power_mw: Option<u32>,
    /// NVML's names of what holds the clocks back, with blanks between.
    pub throttle_reasons: String,
}

impl StateRow {
    fn reasons(&self) -> impl Iterator<Item = &str> {
        // Clocks of a card without work are low because nothing needs them.
        self.throttle_reasons.split_whitespace().filter(|reason| *reason != "gpu_idle")
    }
}

/// What of NVML's reasons tells of a card that is too hot or badly supplied; the others are limits that were set.
fn is_fault(reason: &str) -> bool {
    reason.starts_with("hw_") || reason.contains("thermal")
}

/// What one card did over all looks of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Clocks {
    /// Card of the host.
    pub card: u32,
    /// How often NVML was asked.
    pub looks: usize,
    /// Lowest, median and highest clock of the multiprocessors, MHz.
    pub sm_mhz: Option<[f64; 3]>,
    /// Highest temperature of the processor, degrees Celsius.
    pub hottest_c: Option<u32>,
    /// What held the clocks back, and at how many looks.
    pub held: BTreeMap<String, usize>,
    /// Systems that were measured around a look at which the card was too hot or badly supplied.
    pub suspect: BTreeSet<String>,
}

impl Clocks {
    /// What to say of the card: what its clocks were, what held them back, and whether it throttled.
    pub fn sentence(&self) -> String {
        let clocks = self.sm_mhz.map_or_else(
            || "its clock is unknown".to_owned(),
            |[low, mid, high]| format!("its multiprocessors ran at {low:.0} to {high:.0} MHz (median {mid:.0})"),
        );
        let heat = self.hottest_c.map(|c| format!(", at most {c} degrees Celsius")).unwrap_or_default();
        let held: Vec<String> = self.held.iter().map(|(why, n)| format!("{why} at {n}")).collect();
        let held = if held.is_empty() { "nothing at any".to_owned() } else { held.join(", ") };
        let mut text = format!(
            "Card {}: at {} looks before and after waves {clocks}{heat}; held back by {held} of them.",
            self.card, self.looks
        );
        if !self.suspect.is_empty() {
            let systems = self.suspect.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            text += &format!(
                " The card throttled: it was too hot or badly supplied around waves of {systems}, whose times may be the card's and not the plan's."
            );
        }
        text
    }
}

/// The clocks of every card, in the order of their numbers.
pub fn clocks(rows: &[StateRow]) -> Vec<Clocks> {
    let mut cards: BTreeMap<u32, Vec<&StateRow>> = BTreeMap::new();
    for row in rows {
        cards.entry(row.card).or_default().push(row);
    }
    let of = |(card, rows): (u32, Vec<&StateRow>)| {
        let sm: Vec<f64> = rows.iter().filter_map(|row| row.sm_mhz).map(f64::from).collect();
        let (low, high) = sm.iter().fold((f64::INFINITY, 0.0_f64), |(l, h), mhz| (l.min(*mhz), h.max(*mhz)));
        let mut held = BTreeMap::new();
        for reason in rows.iter().flat_map(|row| row.reasons()) {
            *held.entry(reason.to_owned()).or_default() += 1;
        }
        let suspect = rows.iter().filter(|row| row.reasons().any(is_fault)).map(|row| row.system.clone()).collect();
        Clocks {
            card,
            looks: rows.len(),
            sm_mhz: (!sm.is_empty()).then(|| [low, median(&sm), high]),
            hottest_c: rows.iter().filter_map(|row| row.temperature_c).max(),
            held,
            suspect,
        }
    };
    cards.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(system: &str, card: u32, sm_mhz: Option<u32>, reasons: &str) -> StateRow {
        StateRow {
            system: system.into(),
            case: "c".into(),
            q_heads: 16,
            kv_heads: 16,
            transport: "nccl".into(),
            wave: 0,
            round: 0,
            card,
            sm_mhz,
            memory_mhz: None,
            temperature_c: sm_mhz.map(|mhz| mhz / 20),
            power_mw: None,
            throttle_reasons: reasons.into(),
        }
    }

    #[test]
    fn a_card_that_throttles_is_named_with_the_systems_it_ran() {
        let rows = [
            look("ulysses", 1, Some(1980), "gpu_idle"),
            look("libra", 1, Some(1200), "sw_power_cap hw_thermal_slowdown"),
            look("libra", 1, Some(1500), "sw_power_cap"),
            look("ulysses", 0, None, ""),
        ];
        let [cool, hot] = clocks(&rows).try_into().unwrap();
        assert_eq!(
            cool.sentence(),
            "Card 0: at 1 looks before and after waves its clock is unknown; held back by nothing at any of them."
        );
        assert_eq!(
            hot.sentence(),
            "Card 1: at 3 looks before and after waves its multiprocessors ran at 1200 to 1980 MHz (median 1500), at most 99 degrees Celsius; \
             held back by hw_thermal_slowdown at 1, sw_power_cap at 2 of them. The card throttled: it was too hot or badly supplied around waves \
             of libra, whose times may be the card's and not the plan's."
        );
        // A limit of power that was set is no fault.
        assert!(clocks(&rows[2..3])[0].suspect.is_empty());
    }
}
