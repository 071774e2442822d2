use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Timed on real hardware.
    Measured,
    /// Priced by the event simulator on a profile.
    Simulated,
    /// Simulated with launches timed on a card.
    Replayed,
    /// Follows exactly from the input, e.g. pairs or their balance.
    Computed,
    /// The result of a formula over simulated or measured parts.
    Modelled,
}

/// Whether a row has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowStatus {
    /// It has.
    Ok,
    /// Computing it failed.
    Failed,
    /// It was not computed.
    Skipped,
}

/// What a row is about and how its number came to be.
#[derive(Clone, Debug, PartialEq)]
pub struct SummaryKey {
    /// `fig1` .. `fig15`, `table1`, or the id of an experiment.
    pub figure: String,
    /// Workload.
    pub dataset: String,
    /// Exact name of the system, placement or pair.
    pub system: String,
    /// Name of the metric, as docs/METRICS.md lists it.
    pub metric: String,
    /// Unit of `value` and `published`; `1` for numbers without a dimension.
    pub unit: String,
    /// Every coordinate that tells rows apart.
    pub at: Map<String, Value>,
    /// Published value, if there is one.
    pub published: Option<f64>,
    /// Where the number comes from.
    pub kind: Kind,
    /// Backend, e.g. `sim`.
    pub backend: String,
    /// Profile, e.g. `h200`; none when no profile was used.
    pub profile: Option<String>,
}

/// A value with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SummaryValue {
    /// The value, finite.
    pub value: f64,
    /// 95% interval, if there is one.
    pub interval: Option<(f64, f64)>,
    /// Samples that the value rests on.
    pub n: u64,
}

/// One row of `summary.json`. Built by [`ok`](Self::ok) and [`without_value`](Self::without_value) only, so that `value` is
/// null exactly when the status is not ok.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawRow")]
#[non_exhaustive]
pub struct SummaryRow {
    /// See [`SummaryKey::figure`].
    pub figure: String,
    /// See [`SummaryKey::dataset`].
    pub dataset: String,
    /// See [`SummaryKey::system`].
    pub system: String,
    /// See [`SummaryKey::metric`].
    pub metric: String,
    /// See [`SummaryKey::unit`].
    pub unit: String,
    /// See [`SummaryKey::at`].
    pub at: Map<String, Value>,
    /// See [`SummaryKey::published`].
    pub published: Option<f64>,
    /// Our value.
    pub value: Option<f64>,
    /// `value / published`.
    pub ratio: Option<f64>,
    /// Lower end of the 95% interval of the value.
    pub ci_low: Option<f64>,
    /// Upper end of the 95% interval of the value.
    pub ci_high: Option<f64>,
    /// Samples.
    pub n: u64,
    /// See [`SummaryKey::kind`].
    pub kind: Kind,
    /// See [`SummaryKey::backend`].
    pub backend: String,
    /// See [`SummaryKey::profile`].
    pub profile: Option<String>,
    /// Whether there is a value.
    pub status: RowStatus,
    /// In one word, how ours compares with the published value.
    pub verdict: Option<String>,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl SummaryRow {
    /// A row with a value; a value that is not finite makes a failed row.
    pub fn ok(key: SummaryKey, value: SummaryValue, verdict: Option<String>) -> Self {
        if !value.value.is_finite() {
            return Self::without_value(key, RowStatus::Failed, &format!("the value is {}", value.value));
        }
        let interval = value.interval.filter(|(low, high)| low.is_finite() && high.is_finite());
        let mut row = Self::bare(key, RowStatus::Ok);
        row.value = Some(value.value);
        row.ratio = row.published.filter(|p| *p != 0.0).map(|p| value.value / p).filter(|r| r.is_finite());
        (row.ci_low, row.ci_high) = interval.unzip();
        row.n = value.n;
        row.verdict = verdict;
        row
    }

    /// A row without a value: failed, unless `status` says skipped.
    pub fn without_value(key: SummaryKey, status: RowStatus, reason: &str) -> Self {
        let status = if status == RowStatus::Skipped { status } else { RowStatus::Failed };
        Self { reason: Some(reason.to_owned()), ..Self::bare(key, status) }
    }

    fn bare(key: SummaryKey, status: RowStatus) -> Self {
        Self {
            figure: key.figure,
            dataset: key.dataset,
            system: key.system,
            metric: key.metric,
            unit: key.unit,
            at: key.at,
            published: key.published.filter(|p| p.is_finite()),
            value: None,
            ratio: None,
            ci_low: None,
            ci_high: None,
            n: 0,
            kind: key.kind,
            backend: key.backend,
            profile: key.profile,
            status,
            verdict: None,
            reason: None,
        }
    }
}

/// A row as it stands in a file, before it is known to be consistent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRow {
    figure: String,
    dataset: String,
    system: String,
    metric: String,
    unit: String,
    at: Map<String, Value>,
    published: Option<f64>,
    value: Option<f64>,
    ratio: Option<f64>,
    ci_low: Option<f64>,
    ci_high: Option<f64>,
    n: u64,
    kind: Kind,
    backend: String,
    profile: Option<String>,
    status: RowStatus,
    verdict: Option<String>,
    reason: Option<String>,
}

impl TryFrom<RawRow> for SummaryRow {
    type Error = String;

    fn try_from(raw: RawRow) -> Result<Self, String> {
        let place = format!("row of {} {} {}", raw.figure, raw.system, raw.metric);
        match (raw.status, raw.value, &raw.reason) {
            (RowStatus::Ok, Some(_), None) => {}
            (RowStatus::Failed | RowStatus::Skipped, None, Some(_)) => {}
            (RowStatus::Ok, ..) => return Err(format!("{place}: status ok needs a value and no reason")),
            _ => return Err(format!("{place}: a row without status ok needs a reason and no value")),
        }
        Ok(Self {
            figure: raw.figure,
            dataset: raw.dataset,
            system: raw.system,
            metric: raw.metric,
            unit: raw.unit,
            at: raw.at,
            published: raw.published,
            value: raw.value,
            ratio: raw.ratio,
            ci_low: raw.ci_low,
            ci_high: raw.ci_high,
            n: raw.n,
            kind: raw.kind,
            backend: raw.backend,
            profile: raw.profile,
            status: raw.status,
            verdict: raw.verdict,
            reason: raw.reason,
        })
    }
}
