use skewbench_exec::{Instr, InstrId, InstrKind, PassProgram, Program};
use skewbench_plan::{Mask, Pass, Span, TileShape};

use super::times::{Launch, LaunchTimes};
use crate::{Machine, SimError};

/// A stream of the program with its place in the flat list of instructions.
#[derive(Clone, Copy)]
pub(super) struct Stream<'a> {
    pub(super) rank: u32,
    pub(super) number: u32,
    pub(super) instrs: &'a [Instr],
    /// Index of its first instruction in the flat lists.
    pub(super) base: usize,
}

/// The program of one pass, flattened, with the nominal duration of every instruction.
pub(super) struct Priced<'a> {
    pub(super) program: &'a PassProgram,
    pub(super) streams: Vec<Stream<'a>>,
    /// `streams[rank_start[r]..rank_start[r + 1]]` are those of rank r.
    pub(super) rank_start: Vec<usize>,
    /// Picoseconds by flat index; 0 for transfers.
    pub(super) duration: Vec<u64>,
    /// Picoseconds of all launches by rank.
    pub(super) launch_ps: Vec<u64>,
}

/// More streams do not fit the order of events.
const MAX_STREAMS: usize = 256;
/// More ranks do not fit the order of events.
const MAX_RANKS: usize = 1 << 24;

impl<'a> Priced<'a> {
    pub(super) fn new(
        program: &'a Program,
        pass: Pass,
        machine: &Machine,
        launches: &LaunchTimes<'_>,
    ) -> Result<Self, SimError> {
        let table = program.pass(pass);
        let ranks = table.ranks.len();
        if machine.nodes.len() != ranks || ranks >= MAX_RANKS {
            return Err(SimError::Ranks { program: ranks, machine: machine.nodes.len() });
        }
        let mut priced = Self {
            program: table,
            streams: Vec::new(),
            rank_start: Vec::with_capacity(ranks + 1),
            duration: Vec::new(),
            launch_ps: vec![0; ranks],
        };
        let mut pricer = Pricer { program, table, pass, machine, last: None };
        for (rank, body) in table.ranks.iter().enumerate() {
            priced.rank_start.push(priced.streams.len());
            let factor = machine.time_factors.get(rank).copied().unwrap_or(1.0);
            for (number, instrs) in body.streams.iter().enumerate() {
                let (rank, number) = (rank as u32, number as u32);
                if number as usize >= MAX_STREAMS {
                    return Err(SimError::Index { rank, stream: number, index: 0, what: "the stream" });
                }
                priced.streams.push(Stream { rank, number, instrs, base: priced.duration.len() });
                for (index, instr) in instrs.iter().enumerate() {
                    let at = |what| SimError::Index { rank, stream: number, index: index as u32, what };
                    let price = pricer.nominal_ps(instr).map_err(at)?;
                    let launch = matches!(instr.kind, InstrKind::Launch { .. });
                    let id = InstrId { stream: number, index: index as u32 };
                    let nominal = if launch { launches(Launch { pass, rank, id, price_ps: price }) } else { price };
                    let ps = if factor == 1.0 { nominal } else { (nominal as f64 * factor) as u64 };
                    if launch {
                        priced.launch_ps[rank as usize] = priced.launch_ps[rank as usize].saturating_add(ps);
                    }
                    priced.duration.push(ps);
                }
            }
        }
        priced.rank_start.push(priced.streams.len());
        priced.check_dependencies()?;
        Ok(priced)
    }

    fn check_dependencies(&self) -> Result<(), SimError> {
        for stream in &self.streams {
            let siblings = &self.streams[self.rank_range(stream.rank)];
            for (index, instr) in stream.instrs.iter().enumerate() {
                let at = |what| SimError::Index { rank: stream.rank, stream: stream.number, index: index as u32, what };
                let after =
                    self.program.events.get(instr.after.range()).ok_or_else(|| at("its list of dependencies"))?;
                for id in after {
                    let target = siblings.get(id.stream as usize).and_then(|s| s.instrs.get(id.index as usize));
                    target.ok_or_else(|| at("a dependency"))?;
                }
            }
        }
        Ok(())
    }

    /// Streams of a rank.
    pub(super) fn rank_range(&self, rank: u32) -> std::ops::Range<usize> {
        self.rank_start[rank as usize]..self.rank_start[rank as usize + 1]
    }
}

struct Pricer<'a> {
    program: &'a Program,
    table: &'a PassProgram,
    pass: Pass,
    machine: &'a Machine,
    /// The launch before, with its price: head pieces, and ranks that share a group's rows, run the same shapes in turn.
    last: Option<PricedLaunch<'a>>,
}

/// A launch with its price; `heads` are query and KV heads.
struct PricedLaunch<'a> {
    shapes: &'a [TileShape],
    mask: Mask,
    heads: (u32, u32),
    ps: u64,
}

impl Pricer<'_> {
    fn launch_ps(&mut self, tiles: Span, mask: Mask, heads: (u32, u32)) -> Result<u64, &'static str> {
        let shapes = self.table.shapes.get(tiles.range()).ok_or("its list of tiles")?;
        if let Some(last) = self.last.as_ref().filter(|last| (last.mask, last.heads) == (mask, heads))
            && (std::ptr::eq(last.shapes, shapes) || last.shapes == shapes)
        {
            return Ok(last.ps);
        }
        let head_dim = self.program.shape.head_dim;
        let tiles = shapes.iter().map(|tile| (tile.q, tile.k));
        let ps = self.machine.pricing.call_ps(self.pass, mask, heads, head_dim, tiles);
        self.last = Some(PricedLaunch { shapes, mask, heads, ps });
        Ok(ps)
    }

    fn nominal_ps(&mut self, instr: &Instr) -> Result<u64, &'static str> {
        let pricing = &self.machine.pricing;
        Ok(match instr.kind {
            InstrKind::Launch { tiles, mask, q_heads, kv_heads } => {
                self.launch_ps(tiles, mask, (q_heads.len(), kv_heads.len()))?
            }
            // Every byte is read once and written once.
            InstrKind::Pack { bytes, .. } => pricing.copy_ps(bytes.saturating_mul(2)),
            // What arrived is read, the accumulator read and written.
            InstrKind::Merge { bytes, .. } => pricing.copy_ps(bytes.saturating_mul(3)),
            // A bf16 result is read, the f32 accumulator, twice its size, read and written.
            InstrKind::MergeLocal { bytes } => pricing.copy_ps(bytes.saturating_mul(5)),
            // f32 rows are read; sums are read and written, or bf16 rows written.
            InstrKind::Settle { added, rounded } => {
                pricing.copy_ps(added.saturating_mul(3).saturating_add(rounded).saturating_add(rounded / 2))
            }
            // f32 is read, bf16 written.
            InstrKind::Cast { bytes } => pricing.copy_ps(bytes.saturating_add(bytes / 2)),
            InstrKind::Linear { tokens } => (f64::from(tokens) * self.machine.linear.of(self.pass)) as u64,
            InstrKind::Transfer { call } if (call as usize) < self.table.calls.len() => 0,
            InstrKind::Transfer { .. } => return Err("its call"),
        })
    }
}
