use skewbench_plan::PlacedStep;
use skewbench_store::{Column, StoreError, Table};

/// One row a step, wave and data-parallel rank.
pub const WAVES_TABLE: &str = "samples";
/// One row a step.
pub const STEPS_TABLE: &str = "steps";
/// One row a wave and rank of the first step.
pub const RANKS_TABLE: &str = "ranks";

/// What the CP group of one data-parallel rank did in one wave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaveRow {
    /// Step.
    pub step: u32,
    /// Wave of the step.
    pub wave: u32,
    /// Pool of the wave.
    pub pool: u32,
    /// Data-parallel rank.
    pub dp_rank: u32,
    /// Unmasked pairs of the sequence that the placement gave it.
    pub pairs: u64,
    /// Its tokens.
    pub tokens: u64,
    /// End of the forward of the slowest rank of the group's domain: ranks that exchange work wait for each other.
    pub forward_ps: u64,
    /// The same of the backward.
    pub backward_ps: u64,
    /// The domain's forward with transfers that take no time.
    pub forward_compute_ps: u64,
    /// The same of the backward.
    pub backward_compute_ps: u64,
    /// The domain's forward with computation that takes no time.
    pub forward_transfer_ps: u64,
    /// The same of the backward.
    pub backward_transfer_ps: u64,
    /// Forward and backward with half the bandwidth between nodes; 0 when the cell does not ask for the band.
    pub half_network_ps: u64,
    /// The same with double the bandwidth.
    pub double_network_ps: u64,
    /// Bytes that the group's busiest rank sends inside its node.
    pub sent_intra_bytes: u64,
    /// Bytes that it sends to other nodes.
    pub sent_inter_bytes: u64,
    /// Ranks of the domain without attention work.
    pub idle_ranks: u32,
    /// KV heads that the domain's plan sends to more than one rank of a head-parallel group.
    pub replicated_kv_heads: u32,
    /// Rows that the domain's plan computes or sends only to fill a shape.
    pub padding_tokens: u64,
    /// Pairs x query heads of the domain's most loaded rank.
    pub max_load_pairs: u64,
    /// Pairs x query heads of the domain's mean rank.
    pub mean_load_pairs: u64,
    /// Pairs x query heads of the largest piece of work that the planner does not divide; 0 when it has none.
    pub largest_tile_pairs: u64,
    /// Peak bytes of the group's fullest rank for one layer's attention; 0 when plans are not checked.
    pub peak_bytes: u64,
}

/// Rows of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaveRows(pub Vec<WaveRow>);

macro_rules! wave_columns {
    ($($name:ident: $column:ident),* $(,)?) => {
        impl WaveRows {
            /// The rows as a table.
            ///
            /// # Errors
            /// Never for rows of one cell.
            pub fn table(&self) -> Result<Table, StoreError> {
                Table::from_columns([
                    $((stringify!($name), Column::$column(self.0.iter().map(|r| r.$name).collect()))),*
                ])
            }
        }
    };
}

wave_columns! {
    step: U32, wave: U32, pool: U32, dp_rank: U32, pairs: U64, tokens: U64,
    forward_ps: U64, backward_ps: U64, forward_compute_ps: U64, backward_compute_ps: U64,
    forward_transfer_ps: U64, backward_transfer_ps: U64, half_network_ps: U64, double_network_ps: U64,
    sent_intra_bytes: U64, sent_inter_bytes: U64,
    idle_ranks: U32, replicated_kv_heads: U32, padding_tokens: U64,
    max_load_pairs: U64, mean_load_pairs: U64, largest_tile_pairs: U64, peak_bytes: U64,
}

/// What one rank did in one wave of the first step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankRow {
    /// Wave.
    pub wave: u32,
    /// Rank: data-parallel rank x CP + context-parallel rank.
    pub rank: u32,
    /// End of its forward.
    pub forward_ps: u64,
    /// End of its backward.
    pub backward_ps: u64,
    /// Time of its launches, forward and backward.
    pub launches_ps: u64,
    /// Pairs x query heads that it computes in the forward.
    pub load_pairs: u64,
    /// Bytes that it sends, forward and backward.
    pub sent_bytes: u64,
}

/// The rank rows as a table.
///
/// # Errors
/// Never for rows of one cell.
pub fn rank_table(rows: &[RankRow]) -> Result<Table, StoreError> {
    Table::from_columns([
        ("wave", Column::U32(rows.iter().map(|r| r.wave).collect())),
        ("rank", Column::U32(rows.iter().map(|r| r.rank).collect())),
        ("forward_ps", Column::U64(rows.iter().map(|r| r.forward_ps).collect())),
        ("backward_ps", Column::U64(rows.iter().map(|r| r.backward_ps).collect())),
        ("launches_ps", Column::U64(rows.iter().map(|r| r.launches_ps).collect())),
        ("load_pairs", Column::U64(rows.iter().map(|r| r.load_pairs).collect())),
        ("sent_bytes", Column::U64(rows.iter().map(|r| r.sent_bytes).collect())),
    ])
}

/// What the placement did with one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepRow {
    /// Step.
    pub step: u32,
    /// True for steps after the end of the data, which run what the placement still held back.
    pub drain: bool,
    /// Tokens that the data loader delivered.
    pub delivered_tokens: u64,
    /// Tokens that run in the step.
    pub placed_tokens: u64,
    /// Tokens that wait for a later step.
    pub waiting_tokens: u64,
    /// Documents of earlier steps that run in this one.
    pub late_documents: u32,
    /// Their tokens.
    pub late_tokens: u64,
    /// Sum over those documents of tokens x steps of delay.
    pub late_token_steps: u64,
    /// Longest delay among them, in steps.
    pub late_steps_max: u32,
    /// True when the step runs exactly the documents that were delivered in it.
    pub preserved: bool,
    /// Waves that the step has, whether they were all run or not.
    pub waves: u32,
}

impl StepRow {
    /// The row of a placed step.
    pub fn of(step: u32, drain: bool, delivered_tokens: u64, placed: &PlacedStep) -> Self {
        let tokens = |s: &u32| placed.sequences.get(*s as usize).map_or(0, skewbench_plan::PackedSequence::tokens);
        Self {
            step,
            drain,
            delivered_tokens,
            placed_tokens: placed.waves.iter().flat_map(|w| &w.sequences).map(tokens).sum(),
            waiting_tokens: placed.delayed_tokens,
            late_documents: placed.late.len() as u32,
            late_tokens: placed.late.iter().map(|d| u64::from(d.tokens)).sum(),
            late_token_steps: placed.late.iter().map(|d| u64::from(d.tokens) * u64::from(d.steps)).sum(),
            late_steps_max: placed.late.iter().map(|d| d.steps).max().unwrap_or(0),
            preserved: placed.preserved,
            waves: placed.waves.len() as u32,
        }
    }
}

/// The step rows as a table.
///
/// # Errors
/// Never for rows of one cell.
pub fn step_table(rows: &[StepRow]) -> Result<Table, StoreError> {
    Table::from_columns([
        ("step", Column::U32(rows.iter().map(|r| r.step).collect())),
        ("drain", Column::Bool(rows.iter().map(|r| r.drain).collect())),
        ("delivered_tokens", Column::U64(rows.iter().map(|r| r.delivered_tokens).collect())),
        ("placed_tokens", Column::U64(rows.iter().map(|r| r.placed_tokens).collect())),
        ("waiting_tokens", Column::U64(rows.iter().map(|r| r.waiting_tokens).collect())),
        ("late_documents", Column::U32(rows.iter().map(|r| r.late_documents).collect())),
        ("late_tokens", Column::U64(rows.iter().map(|r| r.late_tokens).collect())),
        ("late_token_steps", Column::U64(rows.iter().map(|r| r.late_token_steps).collect())),
        ("late_steps_max", Column::U32(rows.iter().map(|r| r.late_steps_max).collect())),
        ("preserved", Column::Bool(rows.iter().map(|r| r.preserved).collect())),
        ("waves", Column::U32(rows.iter().map(|r| r.waves).collect())),
    ])
}
