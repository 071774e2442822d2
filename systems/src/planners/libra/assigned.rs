//! Plans from an assignment that was made elsewhere: who computes which query block is given, transfers follow from it.

use skewbench_plan::{Domain, Plan, SystemError};

use super::grid::Grid;
use super::heads::HeadCut;
use super::place::Assignment;
use super::{assemble, check_domain};

/// Who computes which query block of which head shard. Keys, homes and transfers are those of the SH-tiles of
/// [`Libra`](super::Libra); blocks need not be of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TileAssignment {
    /// Near-equal cuts of the query heads; each block has a worker for every one.
    pub head_shards: u32,
    /// Head pieces whose transfers overlap the attention of their neighbours; cut to the query heads of the domain.
    pub pieces: u32,
    /// The backward sends Q, K, V, O and LSE again; otherwise workers keep them.
    pub resend: bool,
    /// `ends[sequence]`: one past the last row of each block of the sequence, rising to its tokens.
    pub ends: Vec<Vec<u32>>,
    /// `workers[block * head_shards + shard]`, blocks by sequence and row.
    pub workers: Vec<u32>,
}

/// The plan of `assignment` under the name of `planner`.
///
/// # Errors
/// When the domain or its tiles cannot be numbered, a sequence is not covered, or a block has no worker of the domain.
pub fn plan_assignment(planner: &str, domain: &Domain<'_>, assignment: &TileAssignment) -> Result<Plan, SystemError> {
    let ranks = check_domain(domain)?;
    let refused = |what: String| Err(SystemError::Impossible(what));
    let TileAssignment { head_shards, pieces, resend, ends, workers } = assignment;
    let q_heads = u32::from(domain.shape.q_heads);
    if !(1..=q_heads).contains(head_shards) {
        return refused(format!("{head_shards} head shards; use 1 to the {q_heads} query heads"));
    }
    if *pieces == 0 {
        return refused("0 head pieces; use at least 1".to_owned());
    }
    if ends.len() != domain.sequences.len() {
        return refused(format!("blocks of {} of the {} packed sequences", ends.len(), domain.sequences.len()));
    }
    for (seq, (ends, sequence)) in ends.iter().zip(domain.sequences).enumerate() {
        let rising = std::iter::once(&0).chain(ends).zip(ends).all(|(start, end)| start < end);
        let (covered, tokens) = (ends.last().copied().unwrap_or(0), sequence.tokens());
        if !rising || u64::from(covered) != tokens {
            return refused(format!(
                "blocks of packed sequence {seq} must rise to its {tokens} tokens and end there; they end at {covered}"
            ));
        }
    }
    let blocks: u64 = ends.iter().map(|e| e.len() as u64).sum();
    if blocks.checked_mul(u64::from(*head_shards)) != Some(workers.len() as u64) {
        return refused(format!("{} workers for {blocks} blocks of {head_shards} head shards each", workers.len()));
    }
    if let Some(at) = workers.iter().position(|w| *w >= ranks) {
        let (block, shard) = (at / *head_shards as usize, at % *head_shards as usize);
        return refused(format!(
            "block {block}, head shard {shard}: worker {} does not exist; the domain has ranks 0 to {}",
            workers[at],
            ranks - 1
        ));
    }
    let documents: u64 = domain.sequences.iter().map(|s| s.documents().len() as u64).sum();
    // A worker cuts a document's part of a block into three tiles at most.
    let tiles = (blocks + documents).saturating_mul(3 * u64::from(*head_shards));
    if tiles > u64::from(u32::MAX) {
        return refused(format!("up to {tiles} tiles; at most {} are supported; use larger blocks", u32::MAX));
    }

    let cut = HeadCut::new(domain.shape, *head_shards, *pieces);
    let grid = Grid::cut(domain.sequences, domain.cp, |seq, start| {
        let ends = &ends[seq];
        ends.get(ends.partition_point(|end| *end <= start)).copied().unwrap_or(u32::MAX)
    });
    let mut loads = vec![0u64; ranks as usize];
    let mut largest = 0;
    let tiles = grid.blocks.iter().flat_map(|block| cut.shards.iter().map(move |shard| (block, shard)));
    for ((block, shard), worker) in tiles.zip(workers) {
        let load = block.pairs.checked_mul(u64::from(shard.len()));
        let sum = load.and_then(|load| loads[*worker as usize].checked_add(load));
        let (Some(load), Some(sum)) = (load, sum) else {
            return refused(format!("rank {worker} has more than 2^64 pairs x query heads; use shorter sequences"));
        };
        loads[*worker as usize] = sum;
        largest = largest.max(load);
    }
    let assignment = Assignment { worker: workers.clone(), loads, largest };
    Ok(assemble(planner, domain.shape, grid, &cut, &assignment, *resend))
}
