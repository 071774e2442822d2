use skewbench_plan::{AttentionShape, causal_pairs};

use super::fill::{Document, Item, loads};
use super::options::KvCharge;

/// Elements that a move sends: what candidates are compared by, over the pairs that they move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Price {
    /// Of one query row.
    pub row: f64,
    /// Of one key row, K and V.
    pub key: f64,
    /// Keys that are charged.
    pub charge: KvCharge,
}

impl Price {
    /// The rows of all heads of one tensor-parallel shard.
    pub fn new(shape: AttentionShape, charge: KvCharge) -> Self {
        let row = |heads: u16| f64::from(heads) * f64::from(shape.head_dim);
        Self { row: row(shape.q_heads), key: 2.0 * row(shape.kv_heads), charge }
    }

    /// Elements a pair when `pairs` pairs of a document of `len` rows move and `keys` key rows are charged.
    fn of(self, pairs: f64, len: u32, keys: f64) -> f64 {
        (pairs / (f64::from(len) + 1.0) * self.row + keys * self.key) / pairs
    }

    /// [`of`](Self::of) for a whole document.
    fn of_whole(self, pairs: f64, len: u32) -> f64 {
        self.of(pairs, len, f64::from(len) + 1.0)
    }

    /// Length of the document of which `pairs` pairs are the cheapest to move.
    fn cheapest(self, pairs: f64) -> f64 {
        (pairs * self.row / self.key).sqrt() - 1.0
    }
}

/// An item that could move; `at` says where its donor keeps it.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    priority: f64,
    item: u32,
    pairs: f64,
    at: At,
}

impl Candidate {
    fn key(&self) -> (f64, u32) {
        (self.priority, self.item)
    }
}

#[derive(Clone, Copy, Debug)]
enum At {
    /// Position among the whole documents.
    Whole(usize),
    /// Position among the cut ones.
    Cut(usize),
}

/// The first in list order of the candidates with the lowest priority.
fn lowest(candidates: impl IntoIterator<Item = Candidate>) -> Option<Candidate> {
    candidates.into_iter().reduce(|a, b| if b.key() < a.key() { b } else { a })
}

/// Whole documents of one server by length, those of one length from last to first in list order, so that the last one at
/// or below a position that ends a length is the one to take.
#[derive(Debug, Default)]
struct Wholes {
    lengths: Vec<u32>,
    items: Vec<u32>,
    /// `below[p]`: one past the last position before p that is still there, found by following the chain.
    below: Vec<u32>,
    /// `above[p]`: the first position from p on that is still there, likewise.
    above: Vec<u32>,
}

impl Wholes {
    /// `entries`: (length, item), in list order.
    fn new(entries: &mut [(u32, u32)]) -> Self {
        entries.sort_unstable_by_key(|&(len, item)| (len, std::cmp::Reverse(item)));
        let positions: Vec<u32> = (0..=entries.len() as u32).collect();
        Self {
            lengths: entries.iter().map(|e| e.0).collect(),
            items: entries.iter().map(|e| e.1).collect(),
            below: positions.clone(),
            above: positions,
        }
    }

    fn last_before(&mut self, position: usize) -> Option<usize> {
        follow(&mut self.below, position).checked_sub(1)
    }

    fn first_from(&mut self, position: usize) -> Option<usize> {
        Some(follow(&mut self.above, position)).filter(|&p| p < self.items.len())
    }

    fn remove(&mut self, position: usize) {
        self.below[position + 1] = position as u32;
        self.above[position] = position as u32 + 1;
    }

    /// The best candidates when at most `most` pairs may move: of the documents that move whole the longest, of the others
    /// the two on either side of the length that is cheapest for so many pairs, towards which prices fall from both sides.
    fn candidates(&mut self, price: Price, most: f64) -> impl Iterator<Item = Candidate> + use<> {
        let fit = self.lengths.partition_point(|&len| causal_pairs(len) as f64 <= most);
        let cheapest = price.cheapest(most);
        let middle = fit + self.lengths[fit..].partition_point(|&len| f64::from(len) <= cheapest);
        let longer = self.first_from(middle).and_then(|p| {
            let len = self.lengths[p];
            let end = p + self.lengths[p..].partition_point(|&other| other == len);
            self.last_before(end)
        });
        let found = [self.last_before(fit), self.last_before(middle).filter(|&p| p >= fit), longer];
        found
            .map(|found| {
                let at = found?;
                let len = self.lengths[at];
                let pairs = most.min(causal_pairs(len) as f64);
                Some(Candidate { priority: price.of_whole(pairs, len), item: self.items[at], pairs, at: At::Whole(at) })
            })
            .into_iter()
            .flatten()
    }
}

/// Follows a chain to the entry that names itself, halving the way for the next time.
fn follow(chain: &mut [u32], mut at: usize) -> usize {
    while chain[at] as usize != at {
        let next = chain[chain[at] as usize];
        chain[at] = next;
        at = next as usize;
    }
    at
}

/// A server with more than the mean load.
#[derive(Debug)]
struct Donor {
    surplus: f64,
    wholes: Wholes,
    /// Items that are not whole documents.
    cut: Vec<u32>,
    /// Its best candidate when all of its surplus may move. With less to move no candidate gets cheaper.
    best: Option<Candidate>,
}

/// Moves work from servers above the mean load to those below it, by changing the servers of items and splitting them.
///
/// As published: servers with a deficit, largest first, take one item after another until their deficit is at most
/// `tolerance` x mean. Each time all items on servers with a surplus are candidates; min(deficit, surplus, item) pairs of
/// one can move; the candidate with the fewest elements a pair wins, the first in list order among equals. An item moves
/// whole when all of it can, otherwise as many of its innermost pairs of rows as fit; when not even one does, the server
/// is left as it is. Sums are f64, as published; the rows of a move are counted in integers, so no server is
/// lifted above the mean.
///
/// The published code looks at every item for every move. Here each donor answers by two binary searches: of whole
/// documents, all but three are beaten by another of the same donor whatever the limit; cut items are few. A donor is
/// asked only when its best offer without a limit could win.
pub(super) fn balance(items: &mut Vec<Item>, documents: &[Document], ranks: u32, tolerance: f64, price: Price) {
    let loads = loads(items, ranks);
    let mean = loads.iter().map(|&l| l as f64).sum::<f64>() / f64::from(ranks.max(1));
    let threshold = mean * tolerance;
    let mut recipients: Vec<(u32, f64)> =
        (0u32..).zip(&loads).map(|(rank, &load)| (rank, mean - load as f64)).filter(|r| r.1 > 0.0).collect();
    recipients.sort_by(|a, b| b.1.total_cmp(&a.1));
    if recipients.first().is_none_or(|r| r.1 <= threshold) {
        return;
    }
    let mut balance = Balance { items, documents, price, donors: Vec::new() };
    balance.find_donors(&loads, mean);
    for (recipient, deficit) in recipients.into_iter().take_while(|r| r.1 > threshold) {
        let mut need = deficit;
        while need > threshold
            && let Some((donor, candidate)) = balance.best(need)
        {
            let moved = balance.carry(donor, candidate, recipient);
            if moved == 0 {
                break;
            }
            need -= moved as f64;
        }
    }
}

struct Balance<'a> {
    items: &'a mut Vec<Item>,
    documents: &'a [Document],
    price: Price,
    donors: Vec<Donor>,
}

impl Balance<'_> {
    fn find_donors(&mut self, loads: &[u64], mean: f64) {
        let mut donor_of = vec![u32::MAX; loads.len()];
        for (rank, &load) in (0u32..).zip(loads) {
            let surplus = load as f64 - mean;
            if surplus > 0.0 {
                donor_of[rank as usize] = self.donors.len() as u32;
                self.donors.push(Donor { surplus, wholes: Wholes::default(), cut: Vec::new(), best: None });
            }
        }
        let mut wholes = vec![Vec::new(); self.donors.len()];
        for (index, item) in (0u32..).zip(self.items.iter()) {
            let donor = donor_of[item.server as usize] as usize;
            let Some(found) = self.donors.get_mut(donor) else { continue };
            let len = self.documents[item.document as usize].rounded;
            if item.is_whole(len) {
                wholes[donor].push((len, index));
            } else {
                found.cut.push(index);
            }
        }
        for (donor, mut wholes) in wholes.into_iter().enumerate() {
            self.donors[donor].wholes = Wholes::new(&mut wholes);
            self.refresh(donor);
        }
    }

    fn refresh(&mut self, donor: usize) {
        let surplus = self.donors[donor].surplus;
        self.donors[donor].best = if surplus > 0.0 { self.offer(donor, surplus) } else { None };
    }

    /// The best candidate of a donor when at most `most` pairs may move.
    fn offer(&mut self, donor: usize, most: f64) -> Option<Candidate> {
        let Self { items, documents, price, donors } = self;
        let Donor { wholes, cut, .. } = &mut donors[donor];
        let cut = cut.iter().enumerate().map(|(at, &item)| (at, item, &items[item as usize]));
        let cut = cut.filter(|(.., found)| found.pairs() > 0).map(|(at, item, found)| {
            let len = documents[found.document as usize].rounded;
            let keys = match price.charge {
                KvCharge::Document => f64::from(len) + 1.0,
                KvCharge::Shard => f64::from(found.tail.1.max(found.head.1)),
            };
            let pairs = most.min(found.pairs() as f64);
            Candidate { priority: price.of(pairs, len, keys), item, pairs, at: At::Cut(at) }
        });
        lowest(wholes.candidates(*price, most).chain(cut))
    }

    /// The best candidate of all donors for a server that lacks `need` pairs.
    fn best(&mut self, need: f64) -> Option<(usize, Candidate)> {
        let mut best: Option<(usize, Candidate)> = None;
        for donor in 0..self.donors.len() {
            let Donor { surplus, best: Some(unlimited), .. } = self.donors[donor] else { continue };
            // Room for rounding: what is the same price in exact arithmetic may differ in the last places.
            if best.as_ref().is_some_and(|(_, b)| unlimited.priority * (1.0 - 1e-12) > b.priority) {
                continue;
            }
            let offer = if surplus <= need { Some(unlimited) } else { self.offer(donor, need) };
            if let Some(offer) = offer
                && best.as_ref().is_none_or(|(_, b)| offer.key() < b.key())
            {
                best = Some((donor, offer));
            }
        }
        best
    }

    /// Moves a candidate, or what fits of it; returns the pairs that moved.
    fn carry(&mut self, donor: usize, candidate: Candidate, recipient: u32) -> u64 {
        let Candidate { item: index, pairs, at, .. } = candidate;
        let item = &mut self.items[index as usize];
        let all = item.pairs();
        let from = &mut self.donors[donor];
        let moved = if pairs >= all as f64 {
            item.server = recipient;
            match at {
                At::Whole(position) => from.wholes.remove(position),
                At::Cut(position) => {
                    from.cut.remove(position);
                }
            }
            all
        } else {
            let rows = (pairs as u64 / item.row_pair()).min(u64::from(item.row_pairs()));
            if rows == 0 {
                return 0;
            }
            let inner = item.split(rows as u32, recipient);
            if let At::Whole(position) = at {
                from.wholes.remove(position);
                from.cut.push(index);
            }
            let moved = inner.pairs();
            self.items.push(inner);
            moved
        };
        from.surplus -= moved as f64;
        self.refresh(donor);
        moved
    }
}
