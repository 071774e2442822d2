//! Every format in, good and bad.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use skewbench_workloads::{
    Format, ImportError, ImportOptions, ImportReport, Lists, Packing, Progress, ReadOptions, Workload, import,
    read_lengths,
};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn import(&self, inputs: &[PathBuf], read: ReadOptions) -> Result<(ImportReport, Vec<u64>), String> {
        let out = self.path("out.parquet");
        let options = ImportOptions { read, out: out.clone(), overwrite: true };
        let report = import(inputs, &options, &mut |_| ControlFlow::Continue(())).map_err(|e| e.to_string())?;
        Ok((report, read_lengths(&out, &ReadOptions::default()).map_err(|e| e.to_string())?))
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(self.0.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// A .npy file of version 1.
fn npy(kind: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

/// A tokenizer that makes a token of every word it knows and of every word it does not.
const TOKENIZER: &str = r#"{"version": "1.0", "truncation": {"direction": "Right", "max_length": 2, "strategy":
 "LongestFirst", "stride": 0}, "padding": null, "added_tokens": [], "normalizer": null,
 "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
 "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "one": 1}, "unk_token": "[UNK]"}}"#;

#[test]
fn every_format_of_lengths_gives_the_same_documents() {
    let folder = Folder::new();
    let expected = [5u64, 70_000, 1, 1 << 40];
    let le: Vec<u8> = expected.iter().flat_map(|l| l.to_le_bytes()).collect();
    let be: Vec<u8> = expected.iter().flat_map(|l| l.to_be_bytes()).collect();
    let inputs = [
        folder.write("a.txt", "5\n70000\n\n 1 \r\n1099511627776"),
        folder.write("a.csv", "id,tokens\nx,5\n\"y,\nz\",70000\nz,1\nw,1099511627776\n"),
        folder.write("a.tsv", "\u{feff}tokens\tid\n5\tx\n70000.0\ty\n1\tz\n1099511627776\tw\n"),
        folder.write(
            "a.jsonl",
            "{\"id\": \"x\", \"tokens\": 5}\n\n{\"meta\": {\"tokens\": 9}, \"tokens\": [70000, 1]}\n{\"tokens\": 1099511627776}",
        ),
        folder.write("a.ndjson", "{\"length\": [5, 70000, 1, 1099511627776.0]}\n"),
        folder.write("a.npy", npy("<i8", "(4,)", &le)),
        folder.write("b.npy", npy(">u8", "(4,)", &be)),
    ];
    for input in &inputs {
        let (report, lengths) = folder.import(std::slice::from_ref(input), ReadOptions::default()).unwrap();
        assert_eq!(lengths, expected, "{}", input.display());
        assert_eq!((report.documents, report.min, report.max, report.skipped_empty), (4, 1, 1 << 40, 0));
        assert_eq!(report.tokens, 70_006 + (1 << 40));
        assert_eq!(read_lengths(input, &ReadOptions::default()).unwrap(), expected);
    }
    let (report, lengths) = folder.import(&inputs, ReadOptions::default()).unwrap();
    assert_eq!((report.files, report.documents), (7, 28));
    assert_eq!(lengths, expected.repeat(7));
    // Parquet in, Parquet out, and as a workload of the same print as the text.
    let packed = folder.write("copy.parquet", fs::read(folder.path("out.parquet")).unwrap());
    assert_eq!(folder.import(std::slice::from_ref(&packed), ReadOptions::default()).unwrap().1, expected.repeat(7));
    let print =
        |path: &Path| Workload::from_file(path, &ReadOptions::default(), 4096, Packing::Split).unwrap().fingerprint();
    assert_eq!(print(&inputs[0]), print(&inputs[1]));
    assert_ne!(print(&inputs[0]), print(&packed));
}

#[test]
fn small_integer_arrays_are_read() {
    let folder = Folder::new();
    for (kind, data) in
        [("|u1", vec![3u8, 4]), ("|i1", vec![3, 4]), ("<u2", vec![3, 0, 4, 0]), (">i2", vec![0, 3, 0, 4])]
    {
        let path = folder.write("a.npy", npy(kind, "(2,)", &data));
        assert_eq!(read_lengths(&path, &ReadOptions::default()).unwrap(), [3, 4], "{kind}");
    }
}

#[test]
fn fields_can_be_named_and_lists_can_be_token_ids() {
    let folder = Folder::new();
    let path = folder.write("a.jsonl", "{\"ids\": [7, 8, 9], \"tokens\": 1}\n{\"ids\": []}\n{\"ids\": [0]}\n");
    let read = ReadOptions { field: Some("ids".into()), lists: Lists::Tokens, ..ReadOptions::default() };
    let (report, lengths) = folder.import(&[path], read).unwrap();
    assert_eq!((lengths, report.skipped_empty), (vec![3, 1], 1));
    let path = folder.write("odd", "4\n5\n");
    let read = ReadOptions { format: Some(Format::Lines), ..ReadOptions::default() };
    assert_eq!(read_lengths(&path, &read).unwrap(), [4, 5]);
}

#[test]
fn texts_are_tokenised_whole_and_in_order() {
    let folder = Folder::new();
    let tokenizer = Some(folder.write("tokenizer.json", TOKENIZER));
    let read = ReadOptions { tokenizer, ..ReadOptions::default() };
    let jsonl = folder
        .write("a.jsonl", "{\"text\": \"one two three\"}\n{\"text\": \"\"}\n{\"text\": null}\n{\"text\": \" \"}\n");
    let csv = folder.write("a.csv", "text\n\"one, two\nthree four\"\n");
    folder.write("docs/b.md", "one\ntwo");
    // Larger than a block, with characters of several bytes across the block's end.
    folder.write("docs/c.txt", "ää öö\n".repeat(1_000_000));
    folder.write("docs/a/x", "one");
    folder.write("docs/empty", "");
    folder.write("docs/picture.png", [0x89, 0x50, 0, 0xff]);
    let large_binary = [vec![b'a'; 2 << 20], vec![0xff]].concat();
    folder.write("docs/z.bin", large_binary);
    let mut last = Progress::default();
    let options = ImportOptions { read, out: folder.path("out.parquet"), overwrite: false };
    let report = import(&[jsonl, csv, folder.path("docs")], &options, &mut |p| {
        last = p;
        ControlFlow::Continue(())
    })
    .unwrap();
    let lengths = read_lengths(&options.out, &ReadOptions::default()).unwrap();
    assert_eq!(lengths, [3, 4, 1, 2, 2_000_000]);
    assert_eq!((report.skipped_empty, report.skipped_not_text), (4, 2));
    assert_eq!(last.documents, 5);
    assert_eq!(last.bytes_read, last.bytes_total);
    assert!(report.text_mb_per_s().unwrap() > 0.0);
    assert!(
        import(&[folder.path("docs")], &options, &mut |_| ControlFlow::Continue(()))
            .unwrap_err()
            .to_string()
            .contains("exists already")
    );
}

#[test]
fn bad_files_are_refused_with_file_and_line_and_nothing_is_written() {
    let cases: [(&str, &[u8], &str); 45] = [
        ("a.txt", b"", "a.txt: the file is empty"),
        ("a.txt", b"\n\n", "there is no document"),
        ("a.txt", b"5\n0\n", "a.txt:2: length 0"),
        ("a.txt", b"5\n\n-7\n", "a.txt:3: length -7 is negative"),
        ("a.txt", b"1.5", "a.txt:1: length 1.5 is fractional"),
        ("a.txt", b"1\nNaN\n", "a.txt:2: length NaN"),
        ("a.txt", b"1\n1099511627777", "a.txt:2: length 1099511627777 is above 2^40"),
        ("a.txt", b"1\nx\n", "a.txt:2: \"x\" is not a length"),
        ("a.csv", b"", "a.csv: the file is empty"),
        ("a.csv", b"tokens\n", "there is no document"),
        ("a.csv", b"a,b\n1,2\n", "a.csv:1: there is no column tokens or length"),
        ("a.csv", b"a,token\n1,2\n", "did you mean \"token\"?"),
        ("a.csv", b"id,tokens\nx,1\ny,0\n", "a.csv:3: length 0"),
        ("a.csv", b"id,tokens\n\"x\ny\",1\ny,-1\n", "a.csv:4: length -1 is negative"),
        ("a.csv", b"id,tokens\nx,1\ny\n", "a.csv:3: 1 columns where the header has 2"),
        ("a.csv", b"id,tokens\nx,\n", "a.csv:2: the length is missing"),
        ("a.jsonl", b"", "a.jsonl: the file is empty"),
        ("a.jsonl", b"{\"tokens\": 1}\n{\"tokens\": 0}\n", "a.jsonl:2: length 0"),
        ("a.jsonl", b"{\"tokens\": [4, -2]}", "a.jsonl:1: item 2 of the list: length -2 is negative"),
        ("a.jsonl", b"{\"tokens\": [4, [5]]}", "a.jsonl:1: item 2 of the list: a list"),
        ("a.jsonl", b"{\"tokens\": 2.5}", "a.jsonl:1: length 2.5 is fractional"),
        ("a.jsonl", b"{\"tokens\": NaN}", "a.jsonl:1: not a JSON object"),
        ("a.jsonl", b"{\"tokens\": 1e300}", "a.jsonl:1: length"),
        ("a.jsonl", b"{\"tokens\": true}", "a.jsonl:1: the field holds true"),
        ("a.jsonl", b"{\"tokens\": null}", "a.jsonl:1: the length is null"),
        ("a.jsonl", b"{\"tokens\": {\"n\": 1}}", "a.jsonl:1: the field holds an object"),
        ("a.jsonl", b"{\"tokens\": \"many\"}", "a.jsonl:1: the field holds a text; give a tokenizer.json"),
        ("a.jsonl", b"{\"tokens\": 1}\n{\"tokens\": 1, \"te", "a.jsonl:2: not a JSON object: EOF"),
        ("a.jsonl", b"{\"tokens\": 1} {}", "a.jsonl:1: not a JSON object: trailing"),
        ("a.jsonl", b"[1, 2]\n", "a.jsonl:1: not a JSON object"),
        ("a.jsonl", b"{\"tokens\": 1}\n{\"tokns\": 1}\n", "a.jsonl:2: there is no field tokens or length"),
        ("a.jsonl", b"\xff\xfe\x00", "a.jsonl: the text is UTF-16"),
        ("a.csv", b"\xfe\xff\x00t", "a.csv: the text is UTF-16"),
        ("a.jsonl", b"\x80", "a.jsonl:1: not a JSON object"),
        ("a.jsonl", b"{\"tokens\": 1, \"tokens\": 2}", "a.jsonl:1: the field \"tokens\" is there twice"),
        ("a.csv", b"tokens,x,tokens\n1,2,3\n", "a.csv:1: there are several columns \"tokens\""),
        ("a.npy", b"", "a.npy: the file is empty"),
        ("a.npy", b"\x93NUMPY", "a.npy: not a .npy file"),
        ("a.npy", &[0; 100], "a.npy: not a .npy file"),
        ("a.parquet", b"", "a.parquet: the file is empty"),
        ("a.parquet", b"PAR1", "a.parquet: not a Parquet file"),
        ("a.parquet", b"PAR1 and then nothing more", "a.parquet: the Parquet file is truncated"),
        ("a.parquet", b"PAR1\x01\x02\x03\x04\xff\xff\xff\x7fPAR1", "a.parquet: not a Parquet file that can be read"),
        ("a.jsonl.gz", b"\x1f\x8b", "unpack it first"),
        ("a.weird", b"1", "not one of the known suffixes"),
    ];
    for (name, bytes, expected) in cases {
        let folder = Folder::new();
        let path = folder.write(name, bytes);
        let error = folder.import(std::slice::from_ref(&path), ReadOptions::default()).unwrap_err();
        assert!(error.contains(expected), "{name}: {error}");
        assert!(error.contains(name) || expected.starts_with("there is no document"), "{error}");
        assert_eq!(folder.names(), [name], "something was written");
    }
}

#[test]
fn bad_arrays_are_refused() {
    let cases: [(Vec<u8>, &str); 6] = [
        (npy("<i8", "(2,)", &[1, 0, 0, 0, 0, 0, 0, 0]), "a.npy: row 2: the file ends here but its header promises 2"),
        (npy("<i8", "(1,)", &(-4i64).to_le_bytes()), "a.npy: row 1: length -4 is negative"),
        (npy("<u4", "(2,)", &[1, 0, 0, 0, 0, 0, 0, 0]), "a.npy: row 2: length 0"),
        (npy("<f8", "(1,)", &1f64.to_le_bytes()), "save one of integers"),
        (npy("<i8", "(1, 1)", &1i64.to_le_bytes()), "one of one dimension"),
        (npy("<i8", "(99999999999, 99999999999)", &[]), "a.npy: "),
    ];
    for (bytes, expected) in cases {
        let folder = Folder::new();
        let path = folder.write("a.npy", bytes);
        let error = folder.import(&[path], ReadOptions::default()).unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert_eq!(folder.names(), ["a.npy"]);
    }
}

#[test]
fn a_parquet_file_cut_or_damaged_anywhere_is_an_error_or_right() {
    let folder = Folder::new();
    let text: String = (1..3000).map(|i| format!("{}\n", i * 7)).collect();
    let path = folder.write("a.txt", text);
    folder.import(&[path], ReadOptions::default()).unwrap();
    let whole = fs::read(folder.path("out.parquet")).unwrap();
    for cut in [1, 4, 7, 8, 12, 100, whole.len() / 2, whole.len() - 5] {
        let path = folder.write("cut.parquet", &whole[..whole.len() - cut]);
        assert!(read_lengths(&path, &ReadOptions::default()).is_err(), "{cut} bytes cut");
    }
    let error = folder
        .import(&[folder.path("out.parquet")], ReadOptions { field: Some("toks".into()), ..ReadOptions::default() });
    assert!(error.unwrap_err().contains("there is no column \"toks\"; did you mean \"tokens\"?"));
}

#[test]
fn byte_order_marks_are_no_content() {
    for (name, bytes) in [
        ("a.jsonl", &b"\xef\xbb\xbf{\"tokens\": 7}\n"[..]),
        ("a.csv", b"\xef\xbb\xbftokens\n7\n"),
        ("a.txt", b"\xef\xbb\xbf7\n"),
    ] {
        let folder = Folder::new();
        assert_eq!(folder.import(&[folder.write(name, bytes)], ReadOptions::default()).unwrap().1, [7], "{name}");
    }
}

/// `decimal.parquet` and `small.parquet` hold a column `tokens` of decimal128(10, 0) and of int8, written by pyarrow 26.
#[test]
fn columns_of_types_that_are_not_read_are_named() {
    for (file, kind) in [("decimal.parquet", "Decimal"), ("small.parquet", "Int8")] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file);
        let error = read_lengths(&path, &ReadOptions::default()).unwrap_err().to_string();
        assert!(error.contains(&format!("{file}: the column \"tokens\" is of type {kind}")), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn an_import_that_is_told_to_stop_leaves_nothing() {
    let folder = Folder::new();
    let lines = folder.write("a.txt", "123\n".repeat(600_000));
    let options = ImportOptions { read: ReadOptions::default(), out: folder.path("out.parquet"), overwrite: false };
    let error = import(&[lines], &options, &mut |_| ControlFlow::Break(())).unwrap_err();
    assert!(matches!(error, ImportError::Stopped), "{error}");
    assert_eq!(folder.names(), ["a.txt"]);
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let folder = Folder::new();
    let tokenizer = folder.write("tokenizer.json", TOKENIZER);
    let lines = folder.write("a.lengths", "1\n");
    let numbers = folder.write("a.jsonl", "{\"text\": 4}\n");
    let binary = folder.write("a.md", [0xff, 0x00]);
    let with = |tokenizer: Option<&PathBuf>| ReadOptions { tokenizer: tokenizer.cloned(), ..ReadOptions::default() };
    let error = |inputs: &[PathBuf], read| folder.import(inputs, read).unwrap_err();
    assert!(error(&[], with(None)).contains("no input"));
    assert!(error(&[folder.path("none.txt")], with(None)).contains("none.txt: cannot be read"));
    assert!(error(&[folder.0.path().to_owned()], with(None)).contains("a folder of texts needs a tokenizer.json"));
    assert!(error(std::slice::from_ref(&lines), with(Some(&tokenizer))).contains("leave the tokenizer out"));
    assert!(
        error(std::slice::from_ref(&numbers), with(Some(&tokenizer))).contains("a.jsonl:1: the field holds a number")
    );
    assert!(error(&[binary], with(Some(&tokenizer))).contains("a.md: not a UTF-8 text"));
    assert!(
        error(std::slice::from_ref(&numbers), with(Some(&lines)))
            .contains("a.lengths: not a Hugging Face tokenizer.json")
    );
    let options = ImportOptions { read: with(None), out: folder.path("no/such/folder/x.parquet"), overwrite: false };
    assert!(
        import(&[lines], &options, &mut |_| ControlFlow::Continue(()))
            .unwrap_err()
            .to_string()
            .contains("cannot be written")
    );
}

#[test]
fn many_row_groups_come_back_in_order() {
    let folder = Folder::new();
    let expected: Vec<u64> = (1..=400_000u64).map(|i| i.wrapping_mul(0x9e37_79b9) % 5000 + 1).collect();
    let text: String = expected.iter().map(|l| format!("{l}\n")).collect();
    let path = folder.write("a.txt", text);
    assert_eq!(folder.import(&[path], ReadOptions::default()).unwrap().1, expected);
}
