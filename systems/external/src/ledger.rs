use std::time::Duration;

/// What programs did since the ledger was last taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// Wall-clock time between the questions for plans and their answers, over all processes.
    pub plan: Duration,
    /// Plans that were asked for.
    pub plans: u64,
    /// Wall-clock time between the questions for placements and their answers.
    pub place: Duration,
    /// Placements that were asked for.
    pub places: u64,
    /// What processes wrote to standard error.
    pub standard_error: Vec<StandardError>,
    /// What a process did wrong after its last answer.
    pub complaint: Option<String>,
}

/// What one process wrote to standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandardError {
    /// Name of the system.
    pub system: String,
    /// Beginning and end of the text.
    pub text: String,
    /// Bytes between them that were dropped.
    pub dropped_bytes: u64,
}

/// Processes whose standard error is kept, until the ledger is taken.
const MOST_TEXTS: usize = 64;

impl Ledger {
    pub(crate) fn keep(&mut self, text: StandardError) {
        if self.standard_error.len() < MOST_TEXTS && !(text.text.is_empty() && text.dropped_bytes == 0) {
            self.standard_error.push(text);
        }
    }

    /// Seconds and counts for the timings of a cell.
    pub fn timings(&self) -> Vec<(&'static str, f64)> {
        let of = |names: [&'static str; 2], time: Duration, count: u64| {
            (count > 0).then(|| [(names[0], time.as_secs_f64()), (names[1], count as f64)])
        };
        let plan = of(["external_plan_s", "external_plans"], self.plan, self.plans);
        let place = of(["external_place_s", "external_places"], self.place, self.places);
        plan.into_iter().chain(place).flatten().collect()
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.plan += other.plan;
        self.plans += other.plans;
        self.place += other.place;
        self.places += other.places;
        other.standard_error.into_iter().for_each(|text| self.keep(text));
        self.complaint = self.complaint.take().or(other.complaint);
    }
}
