//! Runs steps on the host, in an order that their dependencies allow.

use std::collections::BTreeSet;

use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use skewbench_cpu::{Inputs, Outputs, Table};
use skewbench_cuda::steps::{DeviceProgram, Exchange, PassSteps, RankDevice, Region, Work};
use skewbench_plan::{Pass, Tensor};

use super::arena::Arena;
use super::attend::attend;

/// How far a stream is: step, and piece of its work.
#[derive(Clone, Copy, Default)]
struct At {
    step: usize,
    work: usize,
}

/// The ranks of a program with their memory.
pub struct Emulated<'a> {
    program: &'a DeviceProgram,
    arenas: Vec<Arena>,
    rng: ChaCha8Rng,
}

impl<'a> Emulated<'a> {
    pub fn new(program: &'a DeviceProgram, inputs: &Inputs, seed: u64) -> Self {
        let mut arenas: Vec<Arena> = program.ranks.iter().map(|rank| Arena::new(rank.arena_bytes)).collect();
        for (arena, rank) in arenas.iter_mut().zip(&program.ranks) {
            rank.inputs.iter().for_each(|region| load(arena, region, inputs));
        }
        Self { program, arenas, rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// Both passes.
    pub fn run(&mut self, inputs: &Inputs) -> Outputs {
        let table = |like: &Table| {
            let mut table = like.clone();
            each_place(inputs, &table).for_each(|(seq, row, head)| {
                table.at_mut(seq, row, head).unwrap().fill(f32::NAN);
            });
            table
        };
        let lse = Inputs::random(&inputs.sequences, skewbench_plan::AttentionShape { head_dim: 1, ..inputs.shape }, 0);
        let mut outputs = Outputs {
            o: table(&inputs.q),
            lse: table(&lse.q),
            dq: table(&inputs.q),
            dk: table(&inputs.k),
            dv: table(&inputs.v),
            forward_trace: Vec::new(),
            backward_trace: Vec::new(),
        };
        for pass in [Pass::Forward, Pass::Backward] {
            self.pass(pass);
            for (arena, rank) in self.arenas.iter().zip(&self.program.ranks) {
                let of_pass = rank
                    .outputs
                    .iter()
                    .filter(|region| matches!(region.tensor, Tensor::O | Tensor::Lse) == (pass == Pass::Forward));
                of_pass.for_each(|region| collect(arena, region, &mut outputs));
            }
        }
        outputs
    }

    fn pass(&mut self, pass: Pass) {
        let program = self.program;
        let ranks: Vec<&PassSteps> = program.ranks.iter().map(|rank: &RankDevice| rank.pass(pass)).collect();
        for (arena, steps) in self.arenas.iter_mut().zip(&ranks) {
            for work in &steps.setup {
                let Work::Fill { offset, words, bits } = work else { panic!("setup has {work:?}") };
                arena.fill(*offset, *words, *bits);
            }
        }
        let mut at: Vec<Vec<At>> = ranks.iter().map(|steps| vec![At::default(); steps.streams.len()]).collect();
        let mut begun: BTreeSet<(u32, u32)> = BTreeSet::new();
        let mut carried: BTreeSet<(u32, u32, u32)> = BTreeSet::new();
        let mut waits = 0;
        loop {
            let known = begun.len();
            let mut ready = Vec::new();
            let mut left = false;
            for (rank, steps) in (0u32..).zip(&ranks) {
                for (stream, list) in steps.streams.iter().enumerate() {
                    let here = at[rank as usize][stream];
                    let Some(step) = list.get(here.step) else { continue };
                    left = true;
                    let over =
                        |id: &skewbench_exec::InstrId| at[rank as usize][id.stream as usize].step > id.index as usize;
                    if here.work == 0 && !step.after.iter().all(over) {
                        continue;
                    }
                    let can = match step.work.get(here.work) {
                        Some(Work::Turn(id)) => over(id),
                        Some(Work::Exchange(exchange)) => {
                            begun.insert((rank, exchange.call));
                            let mut peers = exchange.sends.iter().chain(&exchange.receives).map(|m| m.peer);
                            peers.all(|peer| begun.contains(&(peer, exchange.call)))
                        }
                        _ => true,
                    };
                    if can {
                        ready.push((rank, stream));
                    }
                }
            }
            if !left {
                return;
            }
            // A call that another rank has just begun may go on when looked at again.
            waits = if ready.is_empty() && begun.len() > known { 0 } else { waits + u32::from(ready.is_empty()) };
            assert!(waits < 2, "nothing can go on");
            if ready.is_empty() {
                continue;
            }
            let (rank, stream) = ready[self.rng.random_range(0..ready.len())];
            let here = &mut at[rank as usize][stream];
            let step = &ranks[rank as usize].streams[stream][here.step];
            match step.work.get(here.work) {
                Some(work) => {
                    here.work += 1;
                    self.work(rank, work, &ranks, &mut carried);
                }
                None => *here = At { step: here.step + 1, work: 0 },
            }
        }
    }

    fn work(&mut self, rank: u32, work: &Work, ranks: &[&PassSteps], carried: &mut BTreeSet<(u32, u32, u32)>) {
        let arena = &mut self.arenas[rank as usize];
        match work {
            Work::Fill { offset, words, bits } => arena.fill(*offset, *words, *bits),
            Work::Rows(moves) => {
                let mut order: Vec<usize> = (0..moves.len()).collect();
                order.shuffle(&mut self.rng);
                arena.rows(moves, &order);
            }
            Work::Attend(call) => attend(arena, call),
            Work::Turn(_) => {}
            Work::Exchange(exchange) => self.exchange(rank, exchange, ranks, carried),
        }
    }

    /// Carries what the rank sends and receives, as far as its peers have not done so.
    fn exchange(
        &mut self,
        rank: u32,
        exchange: &Exchange,
        ranks: &[&PassSteps],
        carried: &mut BTreeSet<(u32, u32, u32)>,
    ) {
        let call = exchange.call;
        assert!(exchange.sends.is_sorted_by_key(|m| m.peer) && exchange.receives.is_sorted_by_key(|m| m.peer));
        let peers: BTreeSet<u32> = exchange.sends.iter().chain(&exchange.receives).map(|m| m.peer).collect();
        for peer in peers {
            let theirs = ranks[peer as usize].streams.iter().flatten().flat_map(|step| &step.work);
            let mut theirs = theirs.filter_map(|work| match work {
                Work::Exchange(exchange) if exchange.call == call => Some(exchange),
                _ => None,
            });
            let theirs = theirs.next().expect("a peer takes no part in the call");
            for ((from, sender), (to, receiver)) in
                [((rank, exchange), (peer, theirs)), ((peer, theirs), (rank, exchange))]
            {
                if !carried.insert((call, from, to)) {
                    continue;
                }
                let sends: Vec<_> = sender.sends.iter().filter(|m| m.peer == to).collect();
                let receives: Vec<_> = receiver.receives.iter().filter(|m| m.peer == from).collect();
                assert_eq!(sends.len(), receives.len(), "messages of call {call} from {from} to {to}");
                for (sent, received) in sends.into_iter().zip(receives) {
                    assert_eq!(sent.bytes, received.bytes, "bytes of call {call} from {from} to {to}");
                    assert!(sent.bytes > 0);
                    let bytes = self.arenas[from as usize].bytes(sent.offset, sent.bytes).to_vec();
                    let place = received.offset as usize;
                    self.arenas[to as usize].0[place..place + bytes.len()].copy_from_slice(&bytes);
                }
            }
        }
    }
}

fn each_place<'t>(inputs: &'t Inputs, table: &Table) -> impl Iterator<Item = (u32, u32, u16)> + use<'t> {
    let heads = table.heads() as u16;
    (0u32..)
        .zip(inputs.tokens())
        .flat_map(move |(seq, rows)| (0..rows).flat_map(move |row| (0..heads).map(move |head| (seq, row, head))))
}

/// Rounds inputs to bf16.
pub fn rounded(mut inputs: Inputs) -> Inputs {
    let places: Vec<Vec<_>> =
        [&inputs.q, &inputs.k, &inputs.v, &inputs.d_o].map(|table| each_place(&inputs, table).collect()).into();
    let tables = [&mut inputs.q, &mut inputs.k, &mut inputs.v, &mut inputs.d_o];
    for (table, places) in tables.into_iter().zip(places) {
        for (seq, row, head) in places {
            let values = table.at_mut(seq, row, head).unwrap();
            values.iter_mut().for_each(|x| *x = half::bf16::from_f32(*x).to_f32());
        }
    }
    inputs
}

/// Every row and head of a region, with its first byte.
fn places(region: &Region) -> impl Iterator<Item = (u32, u32, u16, u64)> + '_ {
    let heads = u64::from(region.heads.len());
    let bytes = u64::from(region.width) * region.element.bytes();
    region.runs.iter().flat_map(move |run| {
        (0..run.rows.len).flat_map(move |i| {
            (0..heads).map(move |head| {
                let at = region.offset + (u64::from(run.offset + i) * heads + head) * bytes;
                (run.seq, run.rows.start + i * run.rows.stride, region.heads.start + head as u16, at)
            })
        })
    })
}

fn load(arena: &mut Arena, region: &Region, inputs: &Inputs) {
    let table = match region.tensor {
        Tensor::Q => &inputs.q,
        Tensor::K => &inputs.k,
        Tensor::V => &inputs.v,
        Tensor::DO => &inputs.d_o,
        other => panic!("{other:?} is no input"),
    };
    for (seq, row, head, at) in places(region) {
        for (i, value) in (0u64..).zip(table.at(seq, row, head).unwrap()) {
            arena.set(at + i * region.element.bytes(), region.element, *value);
        }
    }
}

fn collect(arena: &Arena, region: &Region, outputs: &mut Outputs) {
    let table = match region.tensor {
        Tensor::O => &mut outputs.o,
        Tensor::Lse => &mut outputs.lse,
        Tensor::DQ => &mut outputs.dq,
        Tensor::DK => &mut outputs.dk,
        Tensor::DV => &mut outputs.dv,
        other => panic!("{other:?} is no result"),
    };
    for (seq, row, head, at) in places(region) {
        for (i, value) in (0u64..).zip(table.at_mut(seq, row, head).unwrap()) {
            *value = arena.get(at + i * region.element.bytes(), region.element);
        }
    }
}
