//! Programs built by hand.

use std::sync::Arc;

use skewbench_exec::{
    Flow, Instr, InstrId, InstrKind, PassProgram, Program, RankProgram, RouteTable, TransferCall, TransferPart,
};
use skewbench_plan::{AttentionShape, CallMode, Dtype, HeadRange, Mask, Span, TensorSet, TileShape};
use skewbench_sim::{Machine, Overrides, Pricing, Profile};

/// One pass under construction.
pub struct Builder {
    pub pass: PassProgram,
}

impl Builder {
    pub fn new(ranks: usize) -> Self {
        let mut pass = PassProgram::default();
        pass.ranks.resize_with(ranks, RankProgram::default);
        Self { pass }
    }

    pub fn push(&mut self, rank: usize, stream: usize, kind: InstrKind, after: &[InstrId]) -> InstrId {
        let start = self.pass.events.len() as u32;
        self.pass.events.extend_from_slice(after);
        let streams = &mut self.pass.ranks[rank].streams;
        if streams.len() <= stream {
            streams.resize_with(stream + 1, Vec::new);
        }
        let index = streams[stream].len() as u32;
        let after = Span { start, end: self.pass.events.len() as u32 };
        streams[stream].push(Instr { kind, after, micro_batch: 0 });
        InstrId { stream: stream as u32, index }
    }

    /// Tiles of (rows, keys) and a launch of them.
    pub fn launch(&mut self, rank: usize, mask: Mask, heads: u16, tiles: &[(u32, u32)], after: &[InstrId]) -> InstrId {
        let start = self.pass.shapes.len() as u32;
        self.pass.shapes.extend(tiles.iter().map(|&(q, k)| TileShape { q, k }));
        let tiles = Span { start, end: self.pass.shapes.len() as u32 };
        let (q_heads, kv_heads) = (HeadRange::new(0, heads), HeadRange::new(0, 1));
        self.push(rank, 0, InstrKind::Launch { tiles, mask, q_heads, kv_heads }, after)
    }

    pub fn route(&mut self, flows: &[(u32, u32, u64)]) -> u32 {
        let flows = flows.iter().map(|&(from, to, rows)| Flow { from, to, rows }).collect();
        self.pass.routes.push(RouteTable { flows, ..RouteTable::default() });
        self.pass.routes.len() as u32 - 1
    }

    pub fn call(&mut self, routes: u32, row_bytes: u64) -> u32 {
        let heads = HeadRange::new(0, 1);
        let part = TransferPart { routes, tensors: TensorSet::KV, q_heads: heads, kv_heads: heads, row_bytes };
        self.pass.calls.push(TransferCall { mode: CallMode::Copy, dtype: Dtype::Bf16, parts: vec![part], keep: false });
        self.pass.calls.len() as u32 - 1
    }

    /// The pass as the forward of a program whose backward is empty.
    pub fn program(self) -> Program {
        let ranks = self.pass.ranks.len();
        Program {
            shape: AttentionShape { q_heads: 32, kv_heads: 4, head_dim: 128 },
            ranks: ranks as u32,
            forward: self.pass,
            backward: Self::new(ranks).pass,
        }
    }
}

/// The h200 with some keys set, and ranks on nodes.
pub fn machine(overrides: Overrides, nodes: Vec<u32>) -> Machine {
    machine_of(Profile::named("h200").expect("built in"), overrides, nodes)
}

/// A profile with some keys set, and ranks on nodes.
pub fn machine_of(profile: Profile, overrides: Overrides, nodes: Vec<u32>) -> Machine {
    let profile = overrides.apply(&profile, "test").expect("valid overrides");
    Machine::new(Arc::new(Pricing::new(profile)), nodes)
}
