//! Embeds the experiments and tells the binary what it was built from.

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
    files.sort();
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    // Studies that cards execute are files of another kind.
    let (cards, others): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| file.strip_prefix(&experiments).is_ok_and(|below| below.starts_with("cards")));
    fs::write(out.join("experiments.rs"), embed(&experiments, &others, "experiment")?)?;
    fs::write(out.join("cards.rs"), embed(&experiments, &cards, "study for cards")?)?;

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

fn embed(root: &Path, files: &[PathBuf], what: &str) -> io::Result<String> {
    let mut list = format!("/// Id and text of every shipped {what}.\npub const EMBEDDED: &[(&str, &str)] = &[\n");
    for file in files {
        let id = file.strip_prefix(root).unwrap_or(file).with_extension("");
        let id = id.to_string_lossy().replace('\\', "/");
        list.push_str(&format!("    ({id:?}, include_str!({:?})),\n", file.canonicalize()?.display().to_string()));
    }
    list.push_str("];\n");
    Ok(list)
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
