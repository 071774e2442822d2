use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use skewbench_plan::Pass;

use crate::CudaError;
use crate::steps::{DeviceProgram, Exchange, Message, PassSteps, RankDevice, Work};

/// Domains that run at once. Their ranks are numbered through, and so are the events that ranks wait for at each other.
#[derive(Debug, Default)]
pub(super) struct Wave {
    /// All ranks.
    pub ranks: Vec<Arc<RankDevice>>,
    /// Ranks of every domain.
    pub domains: Vec<Range<usize>>,
    /// Which event each slot of the board stands for.
    pub slots: Vec<Slot>,
    forward: PassParts,
    backward: PassParts,
}

/// Parts of ranks in calls: by rank of the wave and call.
type PassParts = HashMap<(usize, u32), Part>;

/// An event that other ranks wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Slot {
    /// A rank is ready to start.
    Ready(usize),
    /// A rank is ready to receive what a call brings.
    Posted { rank: usize, call: u32 },
    /// A rank has copied all that a call brings to another.
    Sent { from: usize, to: usize, call: u32 },
}

impl Slot {
    /// The rank that records it.
    pub fn owner(self) -> usize {
        match self {
            Self::Ready(rank) | Self::Posted { rank, .. } | Self::Sent { from: rank, .. } => rank,
        }
    }
}

/// What a rank does in a call, its messages matched with those of its peers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Part {
    /// Slot of this rank's own post; none where nothing is received.
    pub posted: Option<u32>,
    /// By receiver: those after this rank first, so that not all start at the same one.
    pub sends: Vec<Sends>,
    /// Slots to wait for, one a sender.
    pub arrivals: Vec<u32>,
}

/// What goes to one peer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sends {
    /// Rank of the wave.
    pub to: usize,
    /// Slot of the receiver's post.
    pub posted: u32,
    /// Slot to record after the copies.
    pub sent: u32,
    /// The copies.
    pub copies: Vec<PeerCopy>,
}

/// Bytes of one message: from this rank's arena into the receiver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeerCopy {
    pub from: u64,
    pub to: u64,
    pub bytes: u64,
}

impl Wave {
    /// Puts the programs of some domains side by side.
    ///
    /// # Errors
    /// Messages do not match, or leave an arena.
    pub fn new(programs: &[DeviceProgram]) -> Result<Self, CudaError> {
        let mut wave = Self::default();
        for program in programs {
            let first = wave.ranks.len();
            wave.ranks.extend(program.ranks.iter().map(|rank| Arc::new(rank.clone())));
            wave.domains.push(first..wave.ranks.len());
        }
        wave.slots = (0..wave.ranks.len()).map(Slot::Ready).collect();
        for domain in wave.domains.clone() {
            for pass in [Pass::Forward, Pass::Backward] {
                wave.matched(&domain, pass)?;
            }
        }
        Ok(wave)
    }

    /// A rank's part in a call.
    pub fn part(&self, pass: Pass, rank: usize, call: u32) -> Option<&Part> {
        match pass {
            Pass::Forward => self.forward.get(&(rank, call)),
            Pass::Backward => self.backward.get(&(rank, call)),
        }
    }

    /// All parts of a rank, of both passes.
    pub fn parts(&self, rank: usize) -> impl Iterator<Item = &Part> {
        self.forward.iter().chain(&self.backward).filter(move |((of, _), _)| *of == rank).map(|(_, part)| part)
    }

    /// The domain of a rank.
    pub fn domain(&self, rank: usize) -> Range<usize> {
        self.domains.iter().find(|domain| domain.contains(&rank)).cloned().unwrap_or(rank..rank + 1)
    }

    /// Streams on which ranks of a domain exchange anything, in either pass.
    pub fn exchanging(&self, domain: &Range<usize>) -> BTreeSet<usize> {
        let ranks = self.ranks.get(domain.clone()).unwrap_or_default().iter();
        let passes = ranks.flat_map(|rank| [&rank.forward, &rank.backward]);
        passes.flat_map(|pass| exchanges(pass).map(|(stream, _)| stream)).collect()
    }

    fn matched(&mut self, domain: &Range<usize>, pass: Pass) -> Result<(), CudaError> {
        let ranks: Vec<Arc<RankDevice>> = self.ranks.get(domain.clone()).unwrap_or_default().to_vec();
        let mut calls: BTreeMap<u32, BTreeMap<usize, &Exchange>> = BTreeMap::new();
        for (rank, body) in domain.clone().zip(&ranks) {
            for (_, exchange) in exchanges(body.pass(pass)) {
                if calls.entry(exchange.call).or_default().insert(rank, exchange).is_some() {
                    let call = exchange.call;
                    return Err(CudaError::Program(format!("rank {rank} takes part in call {call} twice")));
                }
                for message in exchange.sends.iter().chain(&exchange.receives) {
                    let end = message.offset.checked_add(message.bytes);
                    if end.is_none_or(|end| end > body.arena_bytes) || message.peer as usize >= ranks.len() {
                        return Err(CudaError::Program(format!("rank {rank} has no such memory or peer: {message:?}")));
                    }
                }
            }
        }
        for (call, parts) in calls {
            self.match_call(domain, pass, call, &parts)?;
        }
        Ok(())
    }

    fn match_call(
        &mut self,
        domain: &Range<usize>,
        pass: Pass,
        call: u32,
        exchanges: &BTreeMap<usize, &Exchange>,
    ) -> Result<(), CudaError> {
        let mut parts: BTreeMap<usize, Part> = BTreeMap::new();
        for (&rank, exchange) in exchanges {
            let part = parts.entry(rank).or_default();
            if !exchange.receives.is_empty() {
                part.posted = Some(self.slot(Slot::Posted { rank, call }));
            }
        }
        for (&from, exchange) in exchanges {
            let mut peers: Vec<usize> = by_peer(&exchange.sends).map(|peer| domain.start + peer as usize).collect();
            let after = peers.iter().filter(|peer| **peer <= from).count();
            peers.rotate_left(after);
            for to in peers {
                let sends = messages(&exchange.sends, to - domain.start);
                let receives = exchanges.get(&to).map(|other| messages(&other.receives, from - domain.start));
                let receives = receives.unwrap_or_default();
                let pairs = sends.iter().zip(&receives);
                let fits = sends.len() == receives.len() && pairs.clone().all(|(a, b)| a.bytes == b.bytes);
                let posted = parts.get(&to).and_then(|part| part.posted).filter(|_| fits);
                let Some(posted) = posted else {
                    return Err(CudaError::Program(format!(
                        "call {call}: what rank {from} sends to rank {to} is not what that rank receives"
                    )));
                };
                let copies = pairs.map(|(a, b)| PeerCopy { from: a.offset, to: b.offset, bytes: a.bytes }).collect();
                let sent = self.slot(Slot::Sent { from, to, call });
                parts.entry(from).or_default().sends.push(Sends { to, posted, sent, copies });
                parts.entry(to).or_default().arrivals.push(sent);
            }
        }
        for (&to, exchange) in exchanges {
            let senders = by_peer(&exchange.receives).count();
            if parts.get(&to).is_none_or(|part| part.arrivals.len() != senders) {
                return Err(CudaError::Program(format!("call {call}: nobody sends what rank {to} receives")));
            }
        }
        let all = match pass {
            Pass::Forward => &mut self.forward,
            Pass::Backward => &mut self.backward,
        };
        all.extend(parts.into_iter().map(|(rank, part)| ((rank, call), part)));
        Ok(())
    }

    fn slot(&mut self, slot: Slot) -> u32 {
        self.slots.push(slot);
        self.slots.len() as u32 - 1
    }

    /// NCCL executes the calls of a communicator in the order in which they are issued, and there is one communicator for
    /// every stream that exchanges: two ranks must have the calls that they share on the same streams, in the same order.
    ///
    /// # Errors
    /// They have not.
    pub fn one_order(&self) -> Result<(), CudaError> {
        for domain in &self.domains {
            for pass in [Pass::Forward, Pass::Backward] {
                let mut shared: HashMap<(usize, usize), Vec<(usize, u32)>> = HashMap::new();
                for rank in domain.clone() {
                    let Some(body) = self.ranks.get(rank) else { continue };
                    for (stream, exchange) in exchanges(body.pass(pass)) {
                        let peers = exchange.sends.iter().chain(&exchange.receives).map(|message| message.peer);
                        for peer in peers.collect::<BTreeSet<_>>() {
                            let pair = (rank, domain.start + peer as usize);
                            shared.entry(pair).or_default().push((stream, exchange.call));
                        }
                    }
                }
                for ((a, b), calls) in &shared {
                    if shared.get(&(*b, *a)) != Some(calls) {
                        return Err(CudaError::Program(format!(
                            "ranks {a} and {b} have their calls in different orders or on different streams; use copy engines"
                        )));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Exchanges of a pass with their streams, in the order of each stream.
fn exchanges(pass: &PassSteps) -> impl Iterator<Item = (usize, &Exchange)> {
    pass.streams.iter().enumerate().flat_map(|(stream, steps)| {
        steps.iter().flat_map(|step| &step.work).filter_map(move |work| match work {
            Work::Exchange(exchange) => Some((stream, exchange)),
            _ => None,
        })
    })
}

fn by_peer(messages: &[Message]) -> impl Iterator<Item = u32> {
    messages.iter().map(|message| message.peer).collect::<BTreeSet<_>>().into_iter()
}

fn messages(all: &[Message], peer: usize) -> Vec<Message> {
    all.iter().filter(|message| message.peer as usize == peer).copied().collect()
}

#[cfg(test)]
pub(super) mod tests {
    use skewbench_exec::InstrKind;
    use skewbench_plan::Pass;

    use super::{PeerCopy, Slot, Wave};
    use crate::steps::{DeviceProgram, Exchange, Message, PassSteps, RankDevice, Step, Work};

    /// A transfer of one call.
    pub(in crate::run) fn transfer(call: u32, sends: &[(u32, u64, u64)], receives: &[(u32, u64, u64)]) -> Step {
        let made = |all: &[(u32, u64, u64)]| {
            all.iter().map(|&(peer, offset, bytes)| Message { peer, offset, bytes }).collect::<Vec<_>>()
        };
        let exchange = Exchange { call, sends: made(sends), receives: made(receives) };
        let instr = InstrKind::Transfer { call };
        Step { instr, micro_batch: 0, after: Vec::new(), work: vec![Work::Exchange(exchange)] }
    }

    /// A domain whose ranks have these transfer streams in the forward.
    pub(in crate::run) fn domain(ranks: Vec<Vec<Vec<Step>>>) -> DeviceProgram {
        let rank = |streams: Vec<Vec<Step>>| {
            let forward = PassSteps { streams: [vec![Vec::new()], streams].concat(), setup: Vec::new() };
            RankDevice { arena_bytes: 1 << 20, forward, ..RankDevice::default() }
        };
        DeviceProgram { ranks: ranks.into_iter().map(rank).collect() }
    }

    fn pair() -> DeviceProgram {
        domain(vec![
            vec![vec![transfer(0, &[(1, 0, 8), (1, 64, 16)], &[(1, 128, 4)])]],
            vec![vec![transfer(0, &[(0, 256, 4)], &[(0, 512, 8), (0, 600, 16)])]],
        ])
    }

    #[test]
    fn messages_are_matched_by_order_and_ranks_are_numbered_through() {
        let wave = Wave::new(&[pair(), pair()]).expect("a wave");
        assert_eq!(wave.domains, [0..2, 2..4]);
        let part = wave.part(Pass::Forward, 2, 0).expect("a part");
        assert_eq!(part.sends.len(), 1);
        assert_eq!(part.sends[0].to, 3);
        assert_eq!(
            part.sends[0].copies,
            [PeerCopy { from: 0, to: 512, bytes: 8 }, PeerCopy { from: 64, to: 600, bytes: 16 }]
        );
        assert_eq!(wave.slots[part.sends[0].posted as usize], Slot::Posted { rank: 3, call: 0 });
        assert_eq!(wave.slots[part.arrivals[0] as usize], Slot::Sent { from: 3, to: 2, call: 0 });
        assert_eq!(wave.exchanging(&(0..2)).into_iter().collect::<Vec<_>>(), [1]);
        assert!(wave.part(Pass::Backward, 2, 0).is_none());
        wave.one_order().expect("the same order");
    }

    #[test]
    fn sends_start_at_the_next_rank() {
        let all = |rank: u32| {
            let peers: Vec<_> =
                (0..4).filter(|peer| *peer != rank).map(|peer| (peer, u64::from(peer) * 8, 8)).collect();
            vec![vec![transfer(0, &peers, &peers)]]
        };
        let wave = Wave::new(&[domain((0..4).map(all).collect())]).expect("a wave");
        let to =
            |rank| wave.part(Pass::Forward, rank, 0).expect("a part").sends.iter().map(|s| s.to).collect::<Vec<_>>();
        assert_eq!(to(0), [1, 2, 3]);
        assert_eq!(to(2), [3, 0, 1]);
        assert_eq!(to(3), [0, 1, 2]);
    }

    #[test]
    fn what_does_not_match_is_refused() {
        let refused = |ranks| Wave::new(&[domain(ranks)]).expect_err("refused").to_string();
        let one = |sends, receives| vec![vec![transfer(0, sends, receives)]];
        assert!(refused(vec![one(&[(1, 0, 8)], &[]), one(&[], &[(0, 0, 9)])]).contains("sends to rank 1"));
        assert!(refused(vec![one(&[(1, 0, 8)], &[]), one(&[], &[])]).contains("sends to rank 1"));
        assert!(refused(vec![one(&[], &[]), one(&[], &[(0, 0, 9)])]).contains("nobody sends"));
        assert!(refused(vec![one(&[(1, 1 << 20, 8)], &[])]).contains("no such memory"));
        let twice = vec![vec![transfer(0, &[], &[]), transfer(0, &[], &[])]];
        assert!(refused(vec![twice]).contains("twice"));
    }

    #[test]
    fn orders_that_nccl_cannot_serve_are_found() {
        let calls =
            |order: [u32; 2], peer| vec![order.map(|call| transfer(call, &[(peer, 0, 8)], &[(peer, 8, 8)])).to_vec()];
        let wave = Wave::new(&[domain(vec![calls([0, 1], 1), calls([1, 0], 0)])]).expect("a wave");
        assert!(wave.one_order().expect_err("orders differ").to_string().contains("copy engines"));
    }
}
