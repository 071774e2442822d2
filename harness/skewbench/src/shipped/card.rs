use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What was measured on, and from which source.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// The card, as its driver names it.
    pub card: String,
    /// How many of them.
    pub cards: u32,
    /// Version of the driver.
    pub driver: String,
    /// Version of CUDA.
    pub cuda: String,
    /// Version of cuDNN.
    pub cudnn: String,
    /// Version of NCCL; none where nothing was sent.
    pub nccl: Option<String>,
    /// What is known of clocks and throttling.
    pub clocks: Option<String>,
    /// Day of the measurement, `YYYY-MM-DD`.
    pub date: String,
    /// Source revision of the program that measured.
    pub revision: String,
    /// Command lines that measured.
    pub commands: Vec<String>,
    /// Variables of the environment that NCCL and CUDA read, where any was set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

impl Card {
    /// Names and values for a page.
    pub fn facts(&self) -> Vec<(String, String)> {
        let cards = if self.cards == 1 { self.card.clone() } else { format!("{} x {}", self.cards, self.card) };
        let mut facts = vec![
            ("card".into(), cards),
            ("driver".into(), self.driver.clone()),
            ("CUDA".into(), self.cuda.clone()),
            ("cuDNN".into(), self.cudnn.clone()),
        ];
        facts.extend(self.nccl.iter().map(|v| ("NCCL".into(), v.clone())));
        facts.extend(self.clocks.iter().map(|v| ("clocks".into(), v.clone())));
        facts.push(("date".into(), self.date.clone()));
        facts.push(("revision".into(), self.revision.clone()));
        facts.extend(self.commands.iter().map(|c| ("command".into(), c.clone())));
        facts.extend(self.settings.iter().map(|(name, value)| (name.clone(), value.clone())));
        facts
    }
}
