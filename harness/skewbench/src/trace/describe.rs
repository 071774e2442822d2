use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use skewbench_exec::{Instr, InstrKind, PassProgram, Program};
use skewbench_plan::{HeadRange, Launch, Move, Pass, Plan, Rows, Span, Work};

/// Name, category and arguments of a slice.
pub(super) struct Described {
    pub(super) name: String,
    pub(super) category: &'static str,
    pub(super) args: Map<String, Value>,
}

/// What a program does, in words.
pub(super) struct Describer<'a> {
    plan: &'a Plan,
    program: &'a Program,
    /// Launches of the plan by pass, rank and stream, in order: those of the program are the same.
    launches: BTreeMap<(Pass, u32, u32), Vec<Launch>>,
    /// Tiles and peers that are listed for one slice at most.
    listed: usize,
}

/// Part of a document.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    sequence: u32,
    document: u32,
    /// First row of the packed sequence that belongs to the document.
    first: u32,
}

impl<'a> Describer<'a> {
    pub(super) fn new(plan: &'a Plan, program: &'a Program, listed: usize) -> Self {
        let mut launches: BTreeMap<(Pass, u32, u32), Vec<Launch>> = BTreeMap::new();
        for pass in [Pass::Forward, Pass::Backward] {
            for (rank, streams) in (0u32..).zip(&plan.pass(pass).ranks) {
                for (stream, ops) in (0u32..).zip(&streams.streams) {
                    let of_stream = ops.iter().filter_map(|op| match op.work {
                        Work::Launch(launch) => Some(launch),
                        _ => None,
                    });
                    launches.insert((pass, rank, stream), of_stream.collect());
                }
            }
        }
        Self { plan, program, launches, listed }
    }

    /// An instruction; `nth` is the number of launches before it on its stream.
    pub(super) fn describe(&self, pass: Pass, rank: u32, stream: u32, instr: &Instr, nth: usize) -> Described {
        let word = match pass {
            Pass::Forward => "forward",
            Pass::Backward => "backward",
        };
        let program = self.program.pass(pass);
        let copy = |what: &str, bytes: u64| Described {
            name: format!("{word} {what}, {}", size(bytes)),
            category: "copy",
            args: Map::from_iter([("bytes".to_owned(), json!(bytes))]),
        };
        let mut described = match instr.kind {
            InstrKind::Launch { q_heads, kv_heads, .. } => {
                let launches = self.launches.get(&(pass, rank, stream));
                let launch = launches.and_then(|l| l.get(nth));
                self.launch(word, pass, launch, q_heads, kv_heads)
            }
            InstrKind::Transfer { call } => self.transfer(word, program, call, rank),
            InstrKind::Pack { call, bytes } => copy(&format!("pack for call {call}"), bytes),
            InstrKind::Merge { call, bytes } => copy(&format!("merge of call {call}"), bytes),
            InstrKind::MergeLocal { bytes } => copy("merge of own sums", bytes),
            InstrKind::Settle { added, rounded } => copy("settle", added.saturating_add(rounded)),
            InstrKind::Cast { bytes } => copy("cast", bytes),
            InstrKind::Linear { tokens } => Described {
                name: format!("{word} linear, {tokens} tokens"),
                category: "linear",
                args: Map::from_iter([("tokens".to_owned(), json!(tokens))]),
            },
        };
        if instr.micro_batch > 0 {
            described.args.insert("micro_batch".into(), json!(instr.micro_batch));
        }
        described
    }

    fn launch(
        &self,
        word: &str,
        pass: Pass,
        launch: Option<&Launch>,
        q_heads: HeadRange,
        kv_heads: HeadRange,
    ) -> Described {
        let heads = text(q_heads);
        let span = launch.map_or(Span { start: 0, end: 0 }, |l| l.tiles);
        let tiles = self.plan.pass(pass).tiles.get(span.range()).unwrap_or_default();
        let mut args = Map::new();
        let (mut rows, mut pairs, mut documents) = (0u64, 0u64, Vec::new());
        let mut list = Vec::new();
        for tile in tiles {
            let tile_pairs = launch.map_or(0, |l| l.mask.pairs(tile.q.len, tile.k.len));
            let place = self.document(tile.seq, tile.q.start);
            rows += u64::from(tile.q.len);
            pairs += tile_pairs;
            documents.push((place.sequence, place.document));
            if list.len() < self.listed {
                list.push(json!({
                    "sequence": place.sequence, "document": place.document, "rows": inside(tile.q, place.first),
                    "keys": inside(tile.k, place.first), "pairs": tile_pairs,
                }));
            }
        }
        documents.sort_unstable();
        documents.dedup();
        let name = match (tiles, documents.as_slice()) {
            ([tile], [(sequence, document)]) => {
                let first = self.document(tile.seq, tile.q.start).first;
                format!(
                    "{word} sequence {sequence} document {document}, rows {} on keys {}, heads {heads}",
                    inside(tile.q, first),
                    inside(tile.k, first)
                )
            }
            _ => format!("{word} {} tiles of {} documents, {rows} rows, heads {heads}", tiles.len(), documents.len()),
        };
        if let Some(launch) = launch {
            args.insert("mask".into(), serde_json::to_value(launch.mask).unwrap_or_default());
        }
        args.insert("heads".into(), json!(heads));
        args.insert("kv_heads".into(), json!(text(kv_heads)));
        args.insert("rows".into(), json!(rows));
        args.insert("pairs_times_heads".into(), json!(pairs.saturating_mul(u64::from(q_heads.len()))));
        args.insert("documents".into(), json!(documents.len()));
        args.insert("tiles".into(), json!(tiles.len()));
        if !list.is_empty() {
            args.insert("tile".into(), json!(list));
        }
        Described { name, category: "attention", args }
    }

    fn transfer(&self, word: &str, program: &PassProgram, call: u32, rank: u32) -> Described {
        let Some(transfer) = program.calls.get(call as usize) else {
            return Described { name: format!("{word} call {call}"), category: "transfer", args: Map::new() };
        };
        let (mut sent, mut received, mut local) = (0u64, 0u64, 0u64);
        let (mut tensors, mut heads, mut peers) = (Vec::new(), Vec::new(), Vec::new());
        let mut parts_of_rank = 0usize;
        for part in &transfer.parts {
            let Some(routes) = program.routes.get(part.routes as usize) else { continue };
            let rows = routes.rows.get(rank as usize).copied().unwrap_or_default();
            if rows.sent + rows.received + rows.local == 0 {
                continue;
            }
            let bytes = |rows: u64| rows.saturating_mul(part.row_bytes);
            sent = sent.saturating_add(bytes(rows.sent));
            received = received.saturating_add(bytes(rows.received));
            local = local.saturating_add(bytes(rows.local));
            let names: Vec<&str> = part.tensors.iter().map(|t| t.name()).collect();
            let names = names.join(" ");
            let on = if part.tensors.iter().all(|t| t.is_kv()) { part.kv_heads } else { part.q_heads };
            let remember = |list: &mut Vec<String>, word: String| {
                if !list.contains(&word) {
                    list.push(word);
                }
            };
            remember(&mut tensors, names.clone());
            remember(&mut heads, text(on));
            for (to, moves) in [(true, routes.index.sent(rank)), (false, routes.index.received(rank))] {
                let mut by_peer: BTreeMap<u32, (u64, Vec<Place>)> = BTreeMap::new();
                for item in moves.iter().filter_map(|i| routes.moves.get(*i as usize)) {
                    let peer = if to { item.to } else { item.from };
                    if peer == rank || item.rows.is_empty() {
                        continue;
                    }
                    let slot = by_peer.entry(peer).or_default();
                    slot.0 += u64::from(item.rows.len);
                    slot.1.extend(self.ends(item));
                }
                parts_of_rank += by_peer.len();
                for (peer, (rows, mut places)) in by_peer {
                    if peers.len() >= self.listed {
                        break;
                    }
                    places.sort_unstable();
                    let direction = if to { "to" } else { "from" };
                    peers.push(json!({
                        direction: peer, "tensors": names, "rows": rows, "heads": text(on), "bytes": bytes(rows),
                        "documents": span_of(&places),
                    }));
                }
            }
        }
        let mut args = Map::new();
        args.insert("mode".into(), serde_json::to_value(transfer.mode).unwrap_or_default());
        args.insert("dtype".into(), serde_json::to_value(transfer.dtype).unwrap_or_default());
        args.insert("call".into(), json!(call));
        args.insert("sent_bytes".into(), json!(sent));
        args.insert("received_bytes".into(), json!(received));
        args.insert("local_bytes".into(), json!(local));
        args.insert("peers".into(), json!(parts_of_rank));
        if !peers.is_empty() {
            args.insert("peer".into(), json!(peers));
        }
        let name = format!(
            "{word} call {call}: {}, heads {}, {} out, {} in",
            tensors.join(" and "),
            heads.join(" and "),
            size(sent),
            size(received)
        );
        Described { name, category: "transfer", args }
    }

    /// Document of a row of a packed sequence.
    fn document(&self, sequence: u32, row: u32) -> Place {
        let bounds = self.plan.sequences.get(sequence as usize).map(Vec::as_slice).unwrap_or_default();
        let document = bounds.partition_point(|bound| *bound <= row).saturating_sub(1);
        Place { sequence, document: document as u32, first: bounds.get(document).copied().unwrap_or(0) }
    }

    /// Documents of the first and last row of a move.
    fn ends(&self, item: &Move) -> [Place; 2] {
        [self.document(item.seq, item.rows.start), self.document(item.seq, item.rows.last())]
    }
}

/// First to last document of sorted places.
fn span_of(places: &[Place]) -> String {
    let word = |p: &Place| format!("sequence {} document {}", p.sequence, p.document);
    match (places.first(), places.last()) {
        (Some(first), Some(last)) if first == last => word(first),
        (Some(first), Some(last)) => format!("{} to {}", word(first), word(last)),
        _ => String::new(),
    }
}

fn text(heads: HeadRange) -> String {
    format!("{}..{}", heads.start, heads.end)
}

/// Rows counted from the first of their document.
fn inside(rows: Rows, first: u32) -> String {
    let range = format!("{}..{}", rows.start.saturating_sub(first), rows.end().saturating_sub(first));
    if rows.stride > 1 { format!("{range} step {}", rows.stride) } else { range }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}
