//! Embeds the experiments and shipped measurements and tells the binary what it was built from.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let experiments = root.join("experiments");
    println!("cargo::rerun-if-changed={}", experiments.display());
    let mut files = Vec::new();
    collect(&experiments, &mut files)?;
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let ids = files.into_iter().map(|file| {
        let id = file.strip_prefix(&experiments).unwrap_or(&file).with_extension("");
        (id, file)
    });
    // Studies that cards execute are files of another kind.
    let (cards, others) = ids.partition(|(id, _): &(PathBuf, PathBuf)| id.starts_with("cards"));
    let list = embedded("EMBEDDED", "Id and text of every shipped experiment.", others)?;
    fs::write(out.join("experiments.rs"), list)?;
    let list = embedded("EMBEDDED", "Id and text of every shipped study for cards.", cards)?;
    fs::write(out.join("cards.rs"), list)?;

    let mut shipped = String::new();
    for (folder, name, of) in [("validation", "VALIDATION", "profile"), ("published", "PUBLISHED", "run")] {
        let folder = root.join("results").join(folder);
        println!("cargo::rerun-if-changed={}", folder.display());
        let what = format!("Path and text of the files of every {of}.");
        shipped.push_str(&embedded(name, &what, measurements(&folder)?)?);
    }
    fs::write(out.join("shipped.rs"), shipped)?;

    for path in [".git/HEAD", ".git/index"] {
        let path = root.join(path);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).current_dir(&root).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let revision = git(&["rev-parse", "HEAD"]).unwrap_or_else(|| "unknown".into());
    let dirty = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|s| !s.is_empty());
    println!("cargo::rustc-env=SKEWBENCH_REVISION={revision}");
    println!("cargo::rustc-env=SKEWBENCH_DIRTY={dirty}");
    // Two builds of different uncommitted changes must not take each other's cells for their own.
    let mut changes = DefaultHasher::new();
    git(&["diff", "HEAD"]).unwrap_or_default().hash(&mut changes);
    println!("cargo::rustc-env=SKEWBENCH_CHANGES={:016x}", changes.finish());
    for folder in ["workloads", "systems", "harness"] {
        println!("cargo::rerun-if-changed={}", root.join(folder).display());
    }
    let rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("--version").output()?;
    println!("cargo::rustc-env=SKEWBENCH_RUSTC={}", String::from_utf8_lossy(&rustc.stdout).trim());
    Ok(())
}

/// The text of a constant that holds files under names.
fn embedded(name: &str, what: &str, mut files: Vec<(PathBuf, PathBuf)>) -> io::Result<String> {
    files.sort();
    let mut list = format!("/// {what}\npub const {name}: &[(&str, &str)] = &[\n");
    for (id, file) in files {
        let id = id.to_string_lossy().replace('\\', "/");
        list.push_str(&format!("    ({id:?}, include_str!({:?})),\n", file.canonicalize()?.display().to_string()));
    }
    list.push_str("];\n");
    Ok(list)
}

/// CSV and TOML files that stand directly in a folder of the given one, each with its path there. What lies deeper, such
/// as run folders, is not part of the binary.
fn measurements(parent: &Path) -> io::Result<Vec<(PathBuf, PathBuf)>> {
    let mut files = Vec::new();
    for folder in fs::read_dir(parent)? {
        let folder = folder?.path();
        if !folder.is_dir() {
            continue;
        }
        for file in fs::read_dir(&folder)? {
            let file = file?.path();
            if file.is_file() && file.extension().is_some_and(|e| e == "csv" || e == "toml") {
                files.push((file.strip_prefix(parent).unwrap_or(&file).to_owned(), file.clone()));
            }
        }
    }
    Ok(files)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "toml") {
            files.push(path);
        }
    }
    Ok(())
}
