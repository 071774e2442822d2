//! Writes a report full of made-up numbers, to look at the layout: `cargo run --example demo -- DIR [TEMPLATES]`.

mod site;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let Some(out) = arguments.next() else {
        eprintln!("usage: demo DIR [TEMPLATES]");
        return ExitCode::from(2);
    };
    match skewbench_report::render(&site::demo(), arguments.next().as_deref(), &out) {
        Ok(rendered) => {
            println!("{}: {} files, {} bytes", rendered.index.display(), rendered.files.len(), rendered.bytes);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
