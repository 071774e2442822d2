use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Formatter;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use skewbench_plan::PackedSequence;
use skewbench_store::stats::median;

use crate::failure::{Failure, nearest};

/// Columns, beside that of the time.
const COLUMNS: [&str; 6] = ["wave", "rank", "pass", "sample", "documents", "sequences"];
/// Columns of a time with its nanoseconds.
const TIMES: [(&str, f64); 4] = [("time_ns", 1.0), ("time_us", 1e3), ("time_ms", 1e6), ("time_s", 1e9)];
/// Most ranks that a layout may have here.
const MOST_RANKS: u64 = 1 << 16;
/// Most tokens of a packed sequence.
const MOST_TOKENS: u64 = 1 << 30;
/// Longest time, a day.
const MOST_NS: f64 = 24.0 * 3600e9;

/// What a time is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimedPass {
    /// Forward.
    Forward,
    /// Backward.
    Backward,
    /// Both together.
    Both,
}

impl TimedPass {
    /// Its word in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Both => "both",
        }
    }
}

/// One wave with the times of all its ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Wave {
    /// Its number in the file.
    pub number: u32,
    /// The packed sequence of every data-parallel rank.
    pub sequences: Vec<PackedSequence>,
    /// Nanoseconds of every rank, the median of its samples.
    pub times: BTreeMap<TimedPass, Vec<f64>>,
}

/// What a file of times holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Waves in the order of their numbers.
    pub waves: Vec<Wave>,
    /// What its times are of, the same in every wave.
    pub passes: Vec<TimedPass>,
    /// Lines that hold a time.
    pub rows: usize,
    /// Hash of the file.
    pub hash: String,
}

/// A line of the file.
struct Row {
    line: usize,
    wave: u32,
    rank: u32,
    pass: TimedPass,
    sample: u32,
    ns: f64,
    documents: Option<Vec<u32>>,
    sequences: Option<Vec<Vec<u32>>>,
}

/// Reads times of `dp` x `cp` ranks: CSV with a header, or JSON lines.
///
/// # Errors
/// The first line that cannot be used, with its number and what to do; a rank or the documents that a wave lacks.
pub fn read(path: &Path, dp: u32, cp: u32) -> Result<Measured, Failure> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|e| Failure::config(format!("{name}: {e}")))?;
    let text = String::from_utf8(bytes).map_err(|_| Failure::config(format!("{name}: is no UTF-8 text")))?;
    parse(&text, &name, dp, cp).map_err(Failure::config)
}

/// As [`read`], of a text; the name's suffix tells its format.
///
/// # Errors
/// As [`read`].
pub fn parse(text: &str, name: &str, dp: u32, cp: u32) -> Result<Measured, String> {
    let ranks = u64::from(dp) * u64::from(cp);
    if ranks == 0 || ranks > MOST_RANKS {
        return Err(format!("{name}: a layout of {ranks} ranks; 1 to {MOST_RANKS} can be imported"));
    }
    let suffix = name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    let rows = match suffix.as_str() {
        "csv" => csv_rows(text),
        "jsonl" | "ndjson" => json_rows(text),
        _ => return Err(format!("{name}: the suffix is none of .csv, .jsonl, .ndjson")),
    };
    let rows = rows.map_err(|(line, what)| format!("{name}:{line}: {what}"))?;
    if rows.is_empty() {
        return Err(format!("{name}: has no times"));
    }
    let count = rows.len();
    let (waves, passes) = gather(rows, dp, cp).map_err(|what| format!("{name}{what}"))?;
    Ok(Measured { waves, passes, rows: count, hash: blake3::hash(text.as_bytes()).to_hex().to_string() })
}

/// A line with what is wrong in it.
type Wrong = (usize, String);

fn csv_rows(text: &str) -> Result<Vec<Row>, Wrong> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let wrong = |e: csv::Error| (e.position().map_or(1, |p| p.line() as usize), e.to_string());
    let header: Vec<String> = reader.headers().map_err(wrong)?.iter().map(str::to_owned).collect();
    known(header.iter().map(String::as_str)).map_err(|what| (1, what))?;
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(wrong)?;
        let line = record.position().map_or(0, |p| p.line() as usize);
        let cells = header.iter().map(String::as_str).zip(record.iter()).filter(|(_, cell)| !cell.is_empty());
        rows.push(row(line, &cells.collect()).map_err(|what| (line, what))?);
    }
    Ok(rows)
}

/// An object of JSON with all its keys, those too that stand there twice.
struct Fields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Fields;

            fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut all = Vec::new();
                while let Some(field) = map.next_entry()? {
                    all.push(field);
                }
                Ok(Fields(all))
            }
        }
        from.deserialize_map(Keys)
    }
}

fn json_rows(text: &str) -> Result<Vec<Row>, Wrong> {
    let mut rows = Vec::new();
    for (i, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let fail = |what: String| (i + 1, what);
        let Fields(object) = serde_json::from_str(text).map_err(|e| fail(format!("is no JSON object: {e}")))?;
        known(object.iter().map(|(key, _)| key.as_str())).map_err(fail)?;
        let list = |value: &Value, between: &str, each: &dyn Fn(&Value) -> Option<String>| {
            let items = value.as_array()?.iter().map(each).collect::<Option<Vec<_>>>();
            items.map(|items| items.join(between))
        };
        let number = |value: &Value| value.is_number().then(|| value.to_string());
        let mut cells = BTreeMap::new();
        for (key, value) in &object {
            let cell = match key.as_str() {
                "documents" => list(value, " ", &number),
                "sequences" => list(value, ";", &|sequence| list(sequence, " ", &number)),
                "pass" => value.as_str().map(str::to_owned),
                _ => number(value),
            };
            let cell = cell.ok_or_else(|| fail(format!("{key}: {value} has the wrong type")))?;
            cells.insert(key.as_str(), cell);
        }
        let cells = cells.iter().map(|(key, cell)| (*key, cell.as_str())).collect();
        rows.push(row(i + 1, &cells).map_err(fail)?);
    }
    Ok(rows)
}

/// Refuses columns that mean nothing or stand there twice, and headers without a time.
fn known<'a>(keys: impl Iterator<Item = &'a str> + Clone) -> Result<(), String> {
    let all = || COLUMNS.into_iter().chain(TIMES.map(|(name, _)| name));
    if let Some(other) = keys.clone().find(|key| !all().any(|known| known == *key)) {
        return Err(format!("unknown column {other}{}", nearest(other, all())));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = keys.clone().find(|key| !seen.insert(*key)) {
        return Err(format!("has {twice} twice"));
    }
    for needed in ["wave", "rank"] {
        if !keys.clone().any(|key| key == needed) {
            return Err(format!("has no {needed}"));
        }
    }
    match keys.filter(|key| TIMES.iter().any(|(name, _)| name == key)).count() {
        1 => Ok(()),
        0 => Err("has no time; give one of time_ns, time_us, time_ms, time_s".into()),
        _ => Err("has several times; give one of time_ns, time_us, time_ms, time_s".into()),
    }
}

fn row(line: usize, cells: &BTreeMap<&str, &str>) -> Result<Row, String> {
    let whole = |key: &str, otherwise: Option<u32>| match cells.get(key) {
        Some(cell) => cell.parse::<u32>().map_err(|_| format!("{key}: {cell:?} is no whole number from 0 to 2^32 - 1")),
        None => otherwise.ok_or_else(|| format!("has no {key}")),
    };
    let (name, scale) = TIMES.iter().find(|(name, _)| cells.contains_key(name)).ok_or("has no time")?;
    let cell = cells[name];
    let time = cell.parse::<f64>().ok().map(|time| time * scale);
    let ns = time.filter(|ns| *ns > 0.0 && *ns <= MOST_NS);
    let ns = ns.ok_or_else(|| format!("{name}: {cell:?} is no time above 0 and up to a day"))?;
    let pass = match cells.get("pass").copied() {
        None | Some("both") => TimedPass::Both,
        Some("forward") => TimedPass::Forward,
        Some("backward") => TimedPass::Backward,
        Some(other) => return Err(format!("pass: {other:?} is none of forward, backward, both")),
    };
    let documents = cells.get("documents").map(|cell| lengths("documents", cell)).transpose()?;
    let sequences = cells.get("sequences").map(|cell| cell.split(';').map(|one| lengths("sequences", one)).collect());
    Ok(Row {
        line,
        wave: whole("wave", None)?,
        rank: whole("rank", None)?,
        pass,
        sample: whole("sample", Some(0))?,
        ns,
        documents,
        sequences: sequences.transpose()?,
    })
}

fn lengths(key: &str, cell: &str) -> Result<Vec<u32>, String> {
    let parse = |word: &str| {
        let length = word.parse::<u32>().ok().filter(|length| *length > 0);
        length.ok_or_else(|| format!("{key}: {word:?} is no length in tokens, a whole number from 1"))
    };
    let list = cell.split_whitespace().map(parse).collect::<Result<Vec<u32>, _>>()?;
    let tokens: u64 = list.iter().map(|length| u64::from(*length)).sum();
    match tokens {
        0 => Err(format!("{key}: a packed sequence without documents")),
        1..=MOST_TOKENS => Ok(list),
        _ => Err(format!("{key}: a packed sequence of {tokens} tokens; at most {MOST_TOKENS}")),
    }
}

/// What lines say of one wave, each with the line that says it.
#[derive(Default)]
struct Gathered {
    sequences: BTreeMap<u32, (usize, Vec<u32>)>,
    times: BTreeMap<(TimedPass, u32), BTreeMap<u32, (usize, f64)>>,
}

impl Gathered {
    fn sequence(&mut self, rank: u32, line: usize, documents: Vec<u32>) -> Result<(), String> {
        match self.sequences.get(&rank) {
            Some((before, other)) if *other != documents => Err(format!(
                ":{line}: other documents of data-parallel rank {rank} than on line {before}; the ranks of a sequence share its documents"
            )),
            Some(_) => Ok(()),
            None => {
                self.sequences.insert(rank, (line, documents));
                Ok(())
            }
        }
    }
}

fn gather(rows: Vec<Row>, dp: u32, cp: u32) -> Result<(Vec<Wave>, Vec<TimedPass>), String> {
    let ranks = dp * cp;
    let mut waves: BTreeMap<u32, Gathered> = BTreeMap::new();
    let mut passes: BTreeMap<TimedPass, usize> = BTreeMap::new();
    for Row { line, wave, rank, pass, sample, ns, documents, sequences } in rows {
        if rank >= ranks {
            return Err(format!(":{line}: rank {rank}; the layout dp = {dp}, cp = {cp} has ranks 0 to {}", ranks - 1));
        }
        passes.entry(pass).or_insert(line);
        let gathered = waves.entry(wave).or_default();
        if let Some((before, _)) = gathered.times.entry((pass, rank)).or_default().insert(sample, (line, ns)) {
            return Err(format!(
                ":{line}: wave {wave}, rank {rank}, pass {}, sample {sample} stands on line {before} already; number repeats in a column sample",
                pass.name()
            ));
        }
        if let Some(documents) = documents {
            gathered.sequence(rank / cp, line, documents)?;
        }
        if let Some(sequences) = sequences {
            if sequences.len() != dp as usize {
                let given = sequences.len();
                return Err(format!(":{line}: sequences: {given} given, the layout has {dp} data-parallel ranks"));
            }
            for (rank, documents) in (0..).zip(sequences) {
                gathered.sequence(rank, line, documents)?;
            }
        }
    }
    if let (Some(line), true) = (passes.get(&TimedPass::Both), passes.len() > 1) {
        return Err(format!(
            ":{line}: a time of both passes in a file that times single passes, too; give the one or the other"
        ));
    }
    let passes: Vec<TimedPass> = passes.into_keys().collect();
    let waves = waves.into_iter().map(|(number, gathered)| one(number, gathered, &passes, (dp, cp)));
    Ok((waves.collect::<Result<_, _>>()?, passes))
}

fn one(number: u32, gathered: Gathered, passes: &[TimedPass], (dp, cp): (u32, u32)) -> Result<Wave, String> {
    let sequences = (0..dp).map(|rank| {
        let found = gathered.sequences.get(&rank).map(|(_, documents)| PackedSequence::new(documents.iter().copied()));
        found.ok_or_else(|| {
            format!(
                ": wave {number} has no documents of data-parallel rank {rank} (ranks {} to {}); give them on one of its lines",
                rank * cp,
                (rank + 1) * cp - 1
            )
        })
    });
    let sequences = sequences.collect::<Result<Vec<_>, _>>()?;
    let mut times = BTreeMap::new();
    for pass in passes {
        let of = |rank: u32| {
            let samples = gathered.times.get(&(*pass, rank)).ok_or_else(|| {
                let of_pass = if *pass == TimedPass::Both { String::new() } else { format!(" of the {}", pass.name()) };
                format!(
                    ": wave {number} has no time{of_pass} of rank {rank}; every wave needs one of each of {} ranks",
                    dp * cp
                )
            })?;
            Ok::<_, String>(median(&samples.values().map(|(_, ns)| *ns).collect::<Vec<_>>()))
        };
        times.insert(*pass, (0..dp * cp).map(of).collect::<Result<Vec<f64>, _>>()?);
    }
    Ok(Wave { number, sequences, times })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "wave,rank,time_ms,documents\n0,0,1.5,100 28\n0,1,2,\n0,2,1e0,128\n0,3,2,128\n";

    #[test]
    fn both_formats_say_the_same() {
        let Measured { waves, passes, rows, .. } = parse(GOOD, "t.csv", 2, 2).unwrap();
        assert_eq!((waves.len(), passes.as_slice(), rows), (1, &[TimedPass::Both][..], 4));
        assert_eq!(waves[0].times[&TimedPass::Both], [1.5e6, 2e6, 1e6, 2e6]);
        assert_eq!(waves[0].sequences[0].documents(), [100, 28]);
        let lines = [
            r#"{"wave": 0, "rank": 0, "time_us": 1500, "sequences": [[100, 28], [128]]}"#,
            r#"{"wave": 0, "rank": 1, "time_us": 2000}"#,
            "",
            r#"{"wave": 0, "rank": 2, "time_us": 1000, "documents": [128]}"#,
            r#"{"wave": 0, "rank": 3, "time_us": 2000.0}"#,
        ];
        assert_eq!(parse(&lines.join("\n"), "t.jsonl", 2, 2).unwrap().waves, waves);
    }

    #[test]
    fn repeats_count_by_their_median() {
        let text = "wave,rank,sample,time_ns,documents\n7,0,0,5,64\n7,0,1,9,\n7,0,2,6,64\n";
        let waves = parse(text, "t.csv", 1, 1).unwrap().waves;
        assert_eq!((waves[0].number, &waves[0].times[&TimedPass::Both]), (7, &vec![6.0]));
    }

    #[test]
    fn what_cannot_be_used_is_named_with_its_line() {
        let with = |line: &str| format!("{GOOD}{line}\n");
        for (text, expected) in [
            (with("1,0,nan,128"), "t.csv:6: time_ms: \"nan\" is no time"),
            (with("1,0,inf,128"), "t.csv:6: time_ms"),
            (with("1,0,-1,128"), "t.csv:6: time_ms: \"-1\""),
            (with("1,0,0,128"), "t.csv:6: time_ms: \"0\""),
            (with("1,0,,128"), "t.csv:6: has no time"),
            (with("1,4,1,128"), "t.csv:6: rank 4; the layout dp = 2, cp = 2 has ranks 0 to 3"),
            (with("0,1,3,"), "t.csv:6: wave 0, rank 1, pass both, sample 0 stands on line 3 already"),
            (with("0,x,3,"), "t.csv:6: rank: \"x\""),
            (with("1,0,3,12 -4"), "t.csv:6: documents: \"-4\""),
            (with("1,0,3,0"), "t.csv:6: documents: \"0\""),
            (with("1,0,3,4000000000 4000000000"), "t.csv:6: documents: a packed sequence of 8000000000 tokens"),
            (with("1,0,3,128"), "t.csv: wave 1 has no documents of data-parallel rank 1 (ranks 2 to 3)"),
            (with("1,0,3,128\n1,2,3,128"), "t.csv: wave 1 has no time of rank 1"),
            (with("1,0,3,128\n1,1,3,64 64"), "t.csv:7: other documents of data-parallel rank 0 than on line 6"),
            ("wave,rank,time\n".into(), "t.csv:1: unknown column time, did you mean time_"),
            ("wave,rank\n0,0\n".into(), "t.csv:1: has no time"),
            ("rank,time_ns\n0,0\n".into(), "t.csv:1: has no wave"),
            ("wave,rank,time_ns,time_ms\n".into(), "t.csv:1: has several times"),
            ("wave,rank,rank,time_ns\n".into(), "t.csv:1: has rank twice"),
            ("wave,rank,time_ns\n0,0\n".into(), "t.csv:2:"),
            ("wave,rank,time_ns\n".into(), "t.csv: has no times"),
            ("".into(), "t.csv:1: has no wave"),
            ("wave,rank,pass,time_ns\n0,0,up,1\n".into(), "t.csv:2: pass: \"up\""),
            ("wave,rank,pass,time_ns\n0,0,both,1\n0,0,forward,1\n".into(), "t.csv:2: a time of both passes"),
            ("wave,rank,time_ns,sequences\n0,0,1,8;8;8\n".into(), "t.csv:2: sequences: 3 given"),
        ] {
            let error = parse(&text, "t.csv", 2, 2).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        for (text, expected) in [
            ("{\"wave\": 0", "t.jsonl:1: is no JSON object"),
            ("[1]", "t.jsonl:1: is no JSON object"),
            ("{\"wave\": 0, \"wave\": 1, \"rank\": 0, \"time_ns\": 5}", "t.jsonl:1: has wave twice"),
            ("\n{\"wave\": 0, \"rank\": 0, \"time_ns\": NaN}", "t.jsonl:2: is no JSON object"),
            ("{\"wave\": 0, \"rank\": 0, \"time_ns\": \"5\"}", "t.jsonl:1: time_ns: \"5\" has the wrong type"),
            ("{\"wave\": 0.5, \"rank\": 0, \"time_ns\": 5}", "t.jsonl:1: wave: \"0.5\""),
            (
                "{\"wave\": 0, \"rank\": 0, \"time_ns\": 5, \"documents\": 8}",
                "t.jsonl:1: documents: 8 has the wrong type",
            ),
            ("{\"wave\": 0, \"rank\": 0, \"time_ns\": 5, \"documents\": [1.5]}", "t.jsonl:1: documents: \"1.5\""),
        ] {
            let error = parse(text, "t.jsonl", 1, 1).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(parse(GOOD, "t.txt", 2, 2).unwrap_err().contains("suffix"));
        assert!(parse(GOOD, "t.csv", 0, 2).unwrap_err().contains("0 ranks"));
    }
}
