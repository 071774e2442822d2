//! Pages about measurements, from files that the test makes up. Nothing here was measured.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use skewbench::present::{measured_page, validation_page};
use skewbench::shipped::{Published, Shipped, Validation};
use skewbench_report::{Page, Site, render};

const CARD: &str = r#"
[card]
card = "Test Card"
cards = 2
driver = "1.2"
cuda = "13.0"
cudnn = "9.19.0"
date = "2026-01-02"
revision = "abc"
commands = ["made up"]
"#;
const TIMES: &str = "predicted_ns,measured_ns_median,measured_ns_min,measured_ns_max,n";
const CUDA: &str =
    "system,case,tokens,pairs,q_heads,kv_heads,head_dim,layout,pieces,transport,pass,mode,wave,rank,sample,warm_up,ns";
const PEERS: &str = "peer,pass,tokens,heads,kv_heads,ranks,rank,sample,ns,torch,cudnn,nccl,card";

fn folder(name: &str, files: &[(&str, String)]) -> Shipped {
    let files = files.iter().map(|(name, text)| ((*name).to_owned(), text.clone())).collect();
    Shipped { folder: Path::new("made-up").join(name), files }
}

fn launches() -> String {
    let mut text = format!("source,pass,mask,q_heads,kv_heads,tiles,q_total,k_total,k_max,pairs,{TIMES}\n");
    for i in 1..=20_u64 {
        let (pass, mask) = if i % 2 == 0 { ("forward", "causal") } else { ("backward", "full") };
        let measured = i * 100_000;
        let predicted = measured as f64 * (1.0 + 0.01 * (i as f64 - 10.0));
        let rows = i * 1000;
        writeln!(
            text,
            "single,{pass},{mask},8,2,1,{rows},{rows},{rows},{},{predicted},{measured},{},{},3",
            rows * rows,
            measured - 100,
            measured + 100
        )
        .unwrap();
    }
    text
}

fn places(with_rank: bool) -> String {
    let rank = if with_rank { "rank," } else { "" };
    let mut text = format!("source,system,workload,layout,pass,wave,{rank}{TIMES}\n");
    for system in ["ulysses", "libra"] {
        for wave in 0..3 {
            let rank = if with_rank { "1," } else { "" };
            writeln!(text, "replay,{system},paper-256k,\"dp=4,cp=8\",forward,{wave},{rank}1020,1000,990,1010,5")
                .unwrap();
        }
    }
    text
}

fn validated() -> Shipped {
    let about = format!("held_out = \"Shapes that were drawn <at random>.\"\n{CARD}");
    folder(
        "test-profile",
        &[
            ("about.toml", about),
            ("launches.csv", launches()),
            ("ranks.csv", places(true)),
            ("waves.csv", places(false)),
        ],
    )
}

/// Two cards: one dense document and two waves of a workload, with all modes, and peers.
fn run() -> Shipped {
    let (mut cuda, mut peers) = (format!("{CUDA}\n"), format!("{PEERS}\n"));
    let cases = [("dense", 65_536_u64, 16, 16, "\"dp=1,cp=2\"", 1), ("real-256k", 524_288, 32, 4, "\"dp=2,cp=1\"", 2)];
    for (case, tokens, heads, kv_heads, layout, waves) in cases {
        for (system, base) in [("ulysses", 2000), ("libra-calibrated", 1000)] {
            for (wave, sample, rank) in (0..waves).flat_map(|w| (0..4).flat_map(move |s| [(w, s, 0), (w, s, 1)])) {
                for (pass, mode, share) in ["forward", "backward"].iter().flat_map(|p| {
                    [("all", 100), ("compute_only", 95), ("transfers_only", 20), ("bare", 90)].map(|(m, s)| (*p, m, s))
                }) {
                    let ns = base * share * (wave + 1) + rank + sample;
                    writeln!(
                        cuda,
                        "{system},{case},{tokens},{},{heads},{kv_heads},128,{layout},4,copy_engines,{pass},{mode},{wave},{rank},{sample},{},{ns}",
                        tokens * (tokens + 1) / if case == "dense" { 2 } else { 8 },
                        sample == 0
                    )
                    .unwrap();
                }
            }
        }
    }
    for (peer, pass, tokens, heads, ranks, ns) in [
        ("torch-ulysses", "forward", 65_536, 16, 2, 150_000),
        ("torch-ulysses", "backward", 65_536, 16, 2, 150_000),
        ("kernel-alone", "forward", 65_536, 16, 2, 80_000),
        ("gemm", "product", 8192, 0, 1, 100_000),
    ] {
        for sample in 0..3 {
            writeln!(
                peers,
                "{peer},{pass},{tokens},{heads},{heads},{ranks},0,{sample},{},2.11,91900,2.28,\"Card, big\"",
                ns + sample
            )
            .unwrap();
        }
    }
    let about = format!(
        "title = \"Two cards\"\nnotes = [\"Made up.\"]\n{CARD}\n[[run]]\nfolder = \"replay\"\nabout = \"fig13, replayed\"\n"
    );
    let failures =
        "system,case,layout,transport,reason\nring-zigzag,dense,\"dp=1,cp=2\",nccl,rank 1 hangs\n".to_owned();
    folder(
        "test-2026-01-02",
        &[("cuda.csv", cuda), ("failures.csv", failures), ("peers.csv", peers), ("published.toml", about)],
    )
}

fn written(page: Page) -> String {
    let name = page.name.clone();
    let out = tempfile::tempdir().unwrap();
    render(&Site { pages: vec![page], ..Site::default() }, None, out.path()).unwrap();
    fs::read_to_string(out.path().join(format!("{name}.html"))).unwrap()
}

fn replaced(mut files: Shipped, name: &str, from: &str, to: &str) -> Shipped {
    let (_, text) = files.files.iter_mut().find(|(n, _)| n == name).unwrap();
    assert!(text.contains(from), "{from}");
    *text = text.replacen(from, to, 1);
    files
}

#[test]
fn the_validation_page_shows_errors_and_what_they_rest_on() {
    let profiles = BTreeSet::from(["test-profile"]);
    let page = validation_page(&profiles, |_| Validation::parse(&validated()).map(Some)).unwrap();
    assert_eq!(page.figures.len(), 6);
    for figure in &page.figures {
        assert!(!figure.caption.is_empty() && !figure.table.rows.is_empty(), "{}", figure.id);
    }
    let worst = page.figures.iter().find(|f| f.id == "validation-worst").unwrap();
    assert_eq!(worst.table.rows.len(), 10);
    let html = written(page);
    for text in [
        "20 kernel launches: the median error is 5.0%",
        "6 waves: the median error is 2.0%",
        "Shapes that were drawn &lt;at random&gt;.",
        "Test Card",
        "9.19.0",
        "index.html",
    ] {
        assert!(html.contains(text), "{text}");
    }
}

#[test]
fn a_profile_without_measurements_says_so() {
    let profiles = BTreeSet::from(["other"]);
    let page = validation_page(&profiles, |_| Ok(None)).unwrap();
    assert!(page.text[0].contains("The profile other was not validated"), "{:?}", page.text);
    assert!(page.figures.is_empty());
    let page = validation_page(&BTreeSet::new(), |_| Ok(None)).unwrap();
    assert!(page.text[0].contains("no profile"), "{:?}", page.text);
}

#[test]
fn the_measured_page_shows_systems_beside_peers() {
    let page = measured_page(&[Published::parse(&run()).unwrap()]);
    assert_eq!(page.figures.len(), 5);
    assert_eq!(page.figures[0].panels.len(), 2);
    let html = written(page);
    for text in [
        // 150 us against 100 us and a few ns.
        "the fastest of ours, libra-calibrated, reaches 1.500x the speed of the fastest peer, torch-ulysses",
        "skewbench report results/published/test-2026-01-02/replay",
        "rank 1 hangs",
        "2 x Test Card",
        "cuDNN 91900",
        "large bf16 product",
    ] {
        assert!(html.contains(text), "{text}");
    }
}

#[test]
fn nothing_published_is_said_too() {
    assert!(written(measured_page(&[])).contains("No run on cards ships with this program"));
}

#[test]
fn files_are_read_strictly() {
    let refused = |files: Shipped| Validation::parse(&files).unwrap_err().message;
    let launches = |from: &str, to: &str| refused(replaced(validated(), "launches.csv", from, to));
    assert!(launches("q_heads", "heads").contains("launches.csv"), "an unknown column");
    assert!(launches(",causal,8", ",causal,0").contains("launches.csv: line 3: heads"));
    assert!(launches("forward", "both").contains("line: 3"), "{}", launches("forward", "both"));
    let ends = launches("99900,100100", "100100,99900");
    assert!(ends.contains("line 2: the median is not between"), "{ends}");
    let mut files = validated();
    files.files.push(("notes.csv".into(), "a\n1\n".into()));
    assert!(refused(files).contains("notes.csv: is none of"));
    let mut files = validated();
    files.files.retain(|(name, _)| name != "about.toml");
    assert!(refused(files).contains("about.toml: is missing"));
    let empty = folder("p", &[validated().files[0].clone()].map(|(_, text)| ("about.toml", text)));
    assert!(refused(empty).contains("stands alone"));
    let unknown = replaced(validated(), "about.toml", "driver", "drivers");
    assert!(refused(unknown).contains("driver"));

    let refused = |from: &str, to: &str| Published::parse(&replaced(run(), "cuda.csv", from, to)).unwrap_err().message;
    assert!(refused("dp=1,cp=2", "dp=1;cp=2").contains("not like dp=1,cp=2"));
    assert!(refused(",all,0,1,", ",all,0,2,").contains("rank 2 of 2"));
    assert!(refused(",all,0,1,", ",all,0,0,").contains("twice"));
    assert!(refused(",all,0,1,0,", ",all,0,1,9,").contains("1 of 2 ranks"));
    assert!(refused("copy_engines,forward,all", "copy_engines,forward,everything").contains("everything"));
    let peers = Published::parse(&replaced(run(), "peers.csv", "product", "forward")).unwrap_err().message;
    assert!(peers.contains("neither attention nor a product"), "{peers}");
}

#[test]
fn folders_on_disk_read_the_same() {
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().join("test-profile");
    fs::create_dir(&folder).unwrap();
    for (name, text) in validated().files {
        fs::write(folder.join(name), text).unwrap();
    }
    fs::write(folder.join("README.md"), "not read").unwrap();
    let read = Validation::parse(&Shipped::read(&folder).unwrap()).unwrap();
    assert_eq!(read, Validation::parse(&validated()).unwrap());
    assert!(Shipped::read(&out.path().join("absent")).is_err());
}
