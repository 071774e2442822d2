//! The templates: built in, replaced one by one by those of the user's folder.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tera::{Context, ErrorKind, Tera};

use crate::canvas::push_escaped;
use crate::error::ReportError;
use crate::text;

const BUILT_IN: [(&str, &str); 18] = [
    ("base.html", include_str!("../../../report-templates/base.html")),
    ("metadata.html", include_str!("../../../report-templates/metadata.html")),
    ("index.html", include_str!("../../../report-templates/index.html")),
    ("figure-page.html", include_str!("../../../report-templates/figure-page.html")),
    ("system.html", include_str!("../../../report-templates/system.html")),
    ("workload.html", include_str!("../../../report-templates/workload.html")),
    ("page.html", include_str!("../../../report-templates/page.html")),
    ("method.html", include_str!("../../../report-templates/method.html")),
    ("environment.html", include_str!("../../../report-templates/environment.html")),
    ("gaps.html", include_str!("../../../report-templates/gaps.html")),
    ("runs.html", include_str!("../../../report-templates/runs.html")),
    ("summary.html", include_str!("../../../report-templates/summary.html")),
    ("figure.html", include_str!("../../../report-templates/figure.html")),
    ("table.html", include_str!("../../../report-templates/table.html")),
    ("links.html", include_str!("../../../report-templates/links.html")),
    ("facts.html", include_str!("../../../report-templates/facts.html")),
    ("sections.html", include_str!("../../../report-templates/sections.html")),
    ("style.css", include_str!("../../../report-templates/style.css")),
];
/// Folders below the user's that are searched.
const DEPTH: usize = 4;

/// The engine with all templates.
pub(crate) struct Templates {
    tera: Tera,
    folder: Option<PathBuf>,
    /// Names that come from the user's folder.
    own: Vec<String>,
}

impl Templates {
    /// The built-in templates, with those of the folder in their place and beside them.
    pub(crate) fn load(folder: Option<&Path>) -> Result<Self, ReportError> {
        let mut sources: Vec<(String, String)> =
            BUILT_IN.iter().map(|(name, source)| ((*name).to_owned(), (*source).to_owned())).collect();
        let mut own = Vec::new();
        if let Some(folder) = folder {
            if !folder.is_dir() {
                return Err(ReportError::NoTemplates(folder.to_owned()));
            }
            let mut found = Vec::new();
            collect(folder, "", 0, &mut found)?;
            for (name, source) in found {
                own.push(name.clone());
                match sources.iter_mut().find(|(n, _)| *n == name) {
                    Some(place) => place.1 = source,
                    None => sources.push((name, source)),
                }
            }
            if !own.iter().any(|name| BUILT_IN.iter().any(|(n, _)| n == name)) {
                let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
                return Err(ReportError::Templates {
                    folder: Some(folder.to_owned()),
                    message: format!("none of {} is there, so nothing would change", names.join(", ")),
                });
            }
        }
        let mut templates = Self { tera: Tera::new(), folder: folder.map(Path::to_owned), own };
        templates.tera.autoescape_on(vec![".html", ".css"]);
        templates.tera.set_escape_fn(escape);
        if let Err(error) = templates.tera.add_raw_templates(sources) {
            return Err(templates.explain(&error));
        }
        Ok(templates)
    }

    /// What a page may use, to start with.
    pub(crate) fn context(&self, view: &impl Serialize) -> Result<Context, ReportError> {
        Context::from_serialize(view).map_err(|e| self.explain(&e))
    }

    /// The page from a template and what it may use.
    pub(crate) fn page(&self, template: &str, context: &Context) -> Result<String, ReportError> {
        self.tera.render(template, context).map_err(|e| self.explain(&e))
    }

    fn explain(&self, error: &tera::Error) -> ReportError {
        match error.kind() {
            ErrorKind::SyntaxError(report) | ErrorKind::RenderingError(report) => ReportError::Template {
                file: self.file(report.filename()),
                line: report.span().start_line,
                column: report.span().start_col + 1,
                message: sentence(report.message()),
            },
            other => ReportError::Templates { folder: self.folder.clone(), message: sentence(&other.to_string()) },
        }
    }

    fn file(&self, name: &str) -> String {
        match &self.folder {
            Some(folder) if self.own.iter().any(|own| own == name) => folder.join(name).display().to_string(),
            _ => format!("{name} (built in)"),
        }
    }
}

/// The engine's message in this project's form: lower case, no full stop, one line.
fn sentence(message: &str) -> String {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.trim_end_matches('.');
    let mut chars = line.chars();
    chars.next().map(|c| c.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

fn escape(text: &str, out: &mut dyn Write) -> std::io::Result<()> {
    let mut escaped = String::with_capacity(text.len());
    push_escaped(&mut escaped, &text::clean(text));
    out.write_all(escaped.as_bytes())
}

fn collect(folder: &Path, prefix: &str, depth: usize, found: &mut Vec<(String, String)>) -> Result<(), ReportError> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect())
        .map_err(ReportError::io("cannot read", folder))?;
    entries.sort();
    for path in entries {
        let Some(name) = path.file_name().and_then(|n| n.to_str()) else { continue };
        let name = format!("{prefix}{name}");
        if path.is_dir() && depth < DEPTH {
            collect(&path, &format!("{name}/"), depth + 1, found)?;
        } else if name.ends_with(".html") || name.ends_with(".css") {
            let source = fs::read_to_string(&path).map_err(ReportError::io("cannot read", &path))?;
            found.push((name, source));
        }
    }
    Ok(())
}
