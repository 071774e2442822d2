use skewbench_plan::{CallMode, Dtype, HeadRange, Move, MoveIndices, Pass, Tensor};

use crate::accumulators::contributions;
use crate::home::{Home, RowList};
use crate::{PassProgram, RouteTable, TransferPart};

/// A part of an accumulate call, as one result sees it.
#[derive(Clone, Copy)]
pub(crate) struct SumPart {
    /// O, dQ or dK.
    pub(crate) tensor: Tensor,
    pub(crate) heads: HeadRange,
    pub(crate) routes: u32,
    pub(crate) dtype: Dtype,
}

impl SumPart {
    /// All of a pass.
    pub(crate) fn of(program: &PassProgram, pass: Pass) -> Vec<Self> {
        let calls = program.calls.iter().filter(|call| call.mode == CallMode::Accumulate);
        let parts = calls.flat_map(|call| call.parts.iter().map(|part| (part, call.dtype)));
        parts
            .flat_map(|(part, dtype)| {
                contributions(pass).iter().filter(|t| part.tensors.has(**t)).map(move |tensor| Self {
                    tensor: *tensor,
                    heads: heads(part, *tensor),
                    routes: part.routes,
                    dtype,
                })
            })
            .collect()
    }
}

/// Heads of a tensor that a part carries.
pub(crate) fn heads(part: &TransferPart, tensor: Tensor) -> HeadRange {
    if tensor.is_kv() { part.kv_heads } else { part.q_heads }
}

/// What accumulate calls bring to one rank, and what they leave there.
#[derive(Default)]
pub(crate) struct Arrivals {
    pub(crate) parts: Vec<SumPart>,
    routes: Vec<Arriving>,
}

#[derive(Default)]
struct Arriving {
    routes: u32,
    /// Some rows are home.
    comes_home: bool,
    /// Rows that are not.
    outside: RowList,
    /// Rows that stay on the rank.
    local: RowList,
}

impl Arrivals {
    /// `moves` are those of each of the routes.
    pub(crate) fn new(
        indices: &MoveIndices,
        (routes, moves): (&[RouteTable], &[&[Move]]),
        all: &[SumPart],
        rank: u32,
        home: &Home,
    ) -> Self {
        let mut this = Self::default();
        for part in all {
            let of_part = routes.get(part.routes as usize).zip(moves.get(part.routes as usize));
            let Some((table, moves)) = of_part else { continue };
            let received = table.index.received(rank);
            if received.is_empty() {
                continue;
            }
            this.parts.push(*part);
            if this.routes.iter().any(|known| known.routes == part.routes) {
                continue;
            }
            let mut arriving = Arriving { routes: part.routes, ..Arriving::default() };
            if indices.go_home(part.routes) && table.rows[rank as usize].local == 0 {
                arriving.comes_home = true;
                this.routes.push(arriving);
                continue;
            }
            let (mut near, mut inside) = (0, RowList::new());
            for mv in received.iter().filter_map(|i| moves.get(*i as usize)) {
                if mv.from == mv.to {
                    arriving.local.push((mv.seq, mv.rows));
                }
                if home.find_near(&mut near, mv.seq, mv.rows).is_some() {
                    arriving.comes_home = true;
                } else {
                    home.split(mv.seq, mv.rows, &mut inside, &mut arriving.outside);
                }
            }
            arriving.comes_home |= !inside.is_empty();
            this.routes.push(arriving);
        }
        this
    }

    fn route(&self, routes: u32) -> Option<&Arriving> {
        self.routes.iter().find(|known| known.routes == routes)
    }

    /// Rows of a route that arrive away from home.
    pub(crate) fn outside(&self, routes: u32) -> impl Iterator<Item = (u32, skewbench_plan::Rows)> + '_ {
        self.route(routes).into_iter().flat_map(|route| route.outside.iter().copied())
    }

    /// True when f32 sums of the tensor arrive at home.
    pub(crate) fn sums_home(&self, tensor: Tensor) -> bool {
        let mut parts = self.parts.iter().filter(|p| p.tensor == tensor && p.dtype == Dtype::F32);
        parts.any(|part| self.route(part.routes).is_some_and(|route| route.comes_home))
    }

    /// Rows of the tensor and heads that stay on the rank.
    pub(crate) fn local(&self, tensor: Tensor, heads: HeadRange) -> RowList {
        let mut routes: Vec<u32> =
            self.parts.iter().filter(|p| p.tensor == tensor && p.heads.overlaps(heads)).map(|p| p.routes).collect();
        routes.sort_unstable();
        routes.dedup();
        routes.into_iter().filter_map(|route| self.route(route)).flat_map(|route| route.local.iter().copied()).collect()
    }
}
