//! Names of the pages, and which page is about what.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::ReportError;
use crate::model::Site;

/// Longest name of a page and id of a figure.
const LONGEST: usize = 80;
/// Pages that every report has, and that of runs.
pub const FIXED: [&str; 5] = ["index", "method", "environment", "gaps", "runs"];

/// True for a name that is safe as a file's and as an anchor's.
pub(crate) fn usable(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.starts_with(plain) && name.len() <= LONGEST && name.chars().all(|c| plain(c) || matches!(c, '-' | '_' | '.'))
}

/// The pages of figures, systems and workloads, by what they are about.
pub(crate) struct Names {
    figures: BTreeSet<String>,
    systems: BTreeMap<String, String>,
    workloads: BTreeMap<String, String>,
}

impl Names {
    /// Names the pages of a site.
    ///
    /// # Errors
    /// An id or name that cannot name a file, or that two pages share.
    pub(crate) fn new(site: &Site) -> Result<Self, ReportError> {
        let mut taken: BTreeSet<String> = FIXED.iter().map(|name| (*name).to_owned()).collect();
        for page in &site.pages {
            if !usable(&page.name) || !taken.insert(page.name.clone()) {
                return Err(ReportError::PageName { name: page.name.clone() });
            }
        }
        let mut figures = BTreeSet::new();
        for figure in &site.figures {
            if !usable(&figure.id) {
                return Err(ReportError::FigureId { id: figure.id.clone() });
            }
            if !taken.insert(figure.id.clone()) {
                return Err(ReportError::DuplicateFigure { id: figure.id.clone() });
            }
            figures.insert(figure.id.clone());
        }
        let mut named = |prefix: &str, names: Vec<&String>| -> BTreeMap<String, String> {
            let mut pages = BTreeMap::new();
            for name in names {
                let page = free(&slug(&format!("{prefix}-{name}")), &taken);
                taken.insert(page.clone());
                pages.entry(name.clone()).or_insert(page);
            }
            pages
        };
        let systems = named("system", site.systems.iter().map(|s| &s.name).collect());
        let workloads = named("workload", site.workloads.iter().map(|w| &w.name).collect());
        Ok(Self { figures, systems, workloads })
    }

    /// Page of a figure; empty where it has none.
    pub(crate) fn figure(&self, id: &str) -> String {
        self.figures.get(id).map(|id| format!("{id}.html")).unwrap_or_default()
    }

    /// Page of a system; empty where it has none.
    pub(crate) fn system(&self, name: &str) -> String {
        self.systems.get(name).map(|page| format!("{page}.html")).unwrap_or_default()
    }

    /// Page of a workload; empty where it has none.
    pub(crate) fn workload(&self, name: &str) -> String {
        self.workloads.get(name).map(|page| format!("{page}.html")).unwrap_or_default()
    }
}

/// The text with everything that a file's name cannot hold as hyphens, one for each run of it.
fn slug(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().flat_map(char::to_lowercase) {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '.') {
            out.push(c);
        } else if !out.ends_with('-') {
            out.push('-');
        }
    }
    out.truncate(LONGEST - 8);
    out.trim_end_matches(['-', '.']).to_owned()
}

fn free(name: &str, taken: &BTreeSet<String>) -> String {
    let numbered = (2..).map(|n| format!("{name}-{n}"));
    std::iter::once(name.to_owned()).chain(numbered).find(|n| !taken.contains(n)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SystemCard;

    #[test]
    fn names_of_systems_become_files() {
        let card = |name: &str| SystemCard { name: name.into(), ..SystemCard::default() };
        let long = "長".repeat(200);
        let site = Site { systems: ["a+b", "a b", "", "../x", &long].map(card).into(), ..Site::default() };
        let names = Names::new(&site).unwrap();
        let pages: Vec<String> = site.systems.iter().map(|s| names.system(&s.name)).collect();
        assert_eq!(pages, ["system-a-b.html", "system-a-b-2.html", "system.html", "system-..-x.html", "system-2.html"]);
        assert_eq!(names.system("unknown"), "");
    }
}
