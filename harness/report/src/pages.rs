//! The pages of a report: what each of them shows, ready for its template.

use serde::Serialize;
use tera::Context;

use crate::error::ReportError;
use crate::figure::Figure;
use crate::model::{Citation, Page, Section, Site, SummaryRow, SystemCard, SystemOption, WorkloadCard};
use crate::names::Names;
use crate::palette::{self, Looks};
use crate::templates::Templates;
use crate::view::{self, FigureFile, FigureView, Place, SummaryView};

/// A link to a page of the report.
#[derive(Debug, Clone, Serialize)]
struct Link {
    href: String,
    label: String,
    /// A few words behind it.
    note: String,
}

/// What all pages share.
#[derive(Serialize)]
struct Frame<'a> {
    report: &'a str,
    revision: &'a str,
    title: String,
    description: String,
    citation: &'a Citation,
    /// Files with the data that the page shows.
    data: Vec<String>,
    navigation: Vec<Entry>,
}

/// What the style sheet shows.
#[derive(Serialize)]
struct Palette {
    palette_light: String,
    palette_dark: String,
    palette_classes: String,
}

/// A link of the navigation.
#[derive(Serialize)]
struct Entry {
    href: String,
    label: String,
    current: bool,
}

#[derive(Serialize)]
struct Fact<'a> {
    name: &'static str,
    value: &'a str,
    code: bool,
}

/// The words of the first page.
#[derive(Serialize)]
struct SiteWords<'a> {
    title: &'a str,
    subtitle: &'a str,
    question: &'a str,
    verdict: &'a [String],
}

/// A question of a reader with its answer.
#[derive(Serialize)]
struct AnswerView<'a> {
    question: &'a str,
    text: &'a [String],
    links: Vec<Link>,
}

/// The words of a further page.
#[derive(Serialize)]
struct PageWords<'a> {
    title: &'a str,
    subtitle: &'a str,
    text: &'a [String],
    facts: &'a [(String, String)],
    method: &'a [Section],
}

/// The words of a system's page.
#[derive(Serialize)]
struct SystemWords<'a> {
    name: &'a str,
    placement: &'a str,
    planner: &'a str,
    description: &'a str,
    source: &'a str,
    options: &'a [SystemOption],
    notes: &'a [String],
    findings: &'a [String],
}

#[derive(Serialize)]
struct FailureView<'a> {
    experiment: &'a str,
    /// Page of the figure; empty where it has none.
    href: String,
    cell: &'a str,
    status: &'static str,
    reason: &'a str,
}

/// A finished page.
pub(crate) struct Made<'a> {
    /// Name of the file.
    pub(crate) file: String,
    /// Its text.
    pub(crate) text: String,
    /// Figures drawn on it.
    pub(crate) figures: Vec<(&'a Figure, FigureFile)>,
}

/// Renders all pages, the first page last.
pub(crate) fn render<'a>(
    site: &'a Site,
    names: &Names,
    templates: &Templates,
    looks: &Looks,
) -> Result<Vec<Made<'a>>, ReportError> {
    let maker = Maker { site, names, templates, looks };
    let mut pages = Vec::new();
    for (i, figure) in site.figures.iter().enumerate() {
        pages.push(maker.figure(i, figure)?);
    }
    for system in &site.systems {
        pages.push(maker.system(system)?);
    }
    for workload in &site.workloads {
        pages.push(maker.workload(workload)?);
    }
    for page in &site.pages {
        let (figures, drawn) = maker.draw(&page.figures)?;
        let mut context = maker.frame(&format!("{}.html", page.name), &page.title, &page.subtitle, &page.figures)?;
        context.insert(
            "page",
            &PageWords {
                title: &page.title,
                subtitle: &page.subtitle,
                text: &page.text,
                facts: &page.facts,
                method: &page.method,
            },
        );
        context.insert("figures", &figures);
        pages.push(maker.page(&page.name, "page.html", &context, drawn)?);
    }
    pages.push(maker.method()?);
    pages.push(maker.environment()?);
    if !site.failures.is_empty() {
        pages.push(maker.gaps()?);
    }
    if site.runs.len() > 1 {
        pages.push(maker.runs()?);
    }
    pages.push(maker.index()?);
    Ok(pages)
}

/// The style sheet that all pages share.
pub(crate) fn style(templates: &Templates) -> Result<String, ReportError> {
    let palette = Palette {
        palette_light: palette::variables(false),
        palette_dark: palette::variables(true),
        palette_classes: palette::classes(),
    };
    templates.page("style.css", &templates.context(&palette)?)
}

/// Colours and markers: systems as everywhere in the report, then what the figures add.
pub(crate) fn looks(site: &Site) -> Looks {
    let figures = figures(site);
    let series = figures.iter().flat_map(|f| &f.panels).flat_map(|p| &p.marks).filter_map(crate::figure::Mark::series);
    Looks::new(site.series_order.iter().map(String::as_str).chain(series))
}

/// All figures of a site.
pub(crate) fn figures(site: &Site) -> Vec<&Figure> {
    let pages = site.pages.iter().flat_map(|p| &p.figures);
    let systems = site.systems.iter().flat_map(|s| &s.figures);
    let first = site.picture.iter().chain(&site.overview);
    first.chain(&site.figures).chain(systems).chain(pages).chain(&site.comparisons).collect()
}

struct Maker<'a, 'b> {
    site: &'a Site,
    names: &'b Names,
    templates: &'b Templates,
    looks: &'b Looks,
}

type Drawn<'a> = Vec<(&'a Figure, FigureFile)>;

impl<'a> Maker<'a, '_> {
    fn page(&self, name: &str, template: &str, context: &Context, figures: Drawn<'a>) -> Result<Made<'a>, ReportError> {
        Ok(Made { file: format!("{name}.html"), text: self.templates.page(template, context)?, figures })
    }

    /// The context that every page starts from; `file` is its own.
    fn frame(&self, file: &str, title: &str, description: &str, figures: &[Figure]) -> Result<Context, ReportError> {
        let site = self.site;
        let mut navigation = vec![("index.html", "Overview")];
        let section = |full: bool, href, label| full.then_some((href, label));
        navigation.extend(section(!site.figures.is_empty(), "index.html#figures", "Figures"));
        navigation.extend(section(!site.systems.is_empty(), "index.html#systems", "Systems"));
        navigation.extend(section(!site.workloads.is_empty(), "index.html#workloads", "Workloads"));
        let mut navigation: Vec<(String, &str)> = navigation.into_iter().map(|(h, l)| (h.to_owned(), l)).collect();
        navigation.extend(site.pages.iter().map(|p| (format!("{}.html", p.name), p.title.as_str())));
        navigation.extend((site.runs.len() > 1).then(|| ("runs.html".to_owned(), "Runs")));
        navigation.push(("method.html".to_owned(), "Method"));
        navigation.push(("environment.html".to_owned(), "Environment"));
        let whole = if title.is_empty() || title == site.title {
            site.title.clone()
        } else {
            format!("{title} · {}", site.title)
        };
        let frame = Frame {
            report: &site.title,
            revision: &site.revision,
            title: whole,
            description: [description, &site.citation.description, &site.question, &site.title]
                .into_iter()
                .find(|text| !text.trim().is_empty())
                .unwrap_or_default()
                .to_owned(),
            citation: &site.citation,
            data: figures.iter().map(|f| format!("data/{}.csv", f.id)).collect(),
            navigation: navigation
                .into_iter()
                .map(|(href, label)| Entry { current: href == file, href, label: label.to_owned() })
                .collect(),
        };
        self.templates.context(&frame)
    }

    fn draw(&self, figures: &'a [Figure]) -> Result<(Vec<FigureView<'a>>, Drawn<'a>), ReportError> {
        let mut views = Vec::new();
        let mut drawn = Vec::new();
        for figure in figures {
            let (view, file) = view::figure(figure, self.looks, Place::Among)?;
            views.push(view);
            drawn.push((figure, file));
        }
        Ok((views, drawn))
    }

    fn rows(&self, keep: impl Fn(&SummaryRow) -> bool) -> Result<Vec<SummaryView<'a>>, ReportError> {
        self.site.summary.iter().filter(|row| keep(row)).map(|row| view::summary(row, self.names)).collect()
    }

    fn figure_link(&self, figure: &Figure) -> Link {
        Link { href: self.names.figure(&figure.id), label: figure.id.clone(), note: figure.title.clone() }
    }

    /// The page of a figure of this id, or the further page of this name.
    fn link(&self, name: &str) -> Option<Link> {
        let figure = self.site.figures.iter().find(|f| f.id == name).map(|f| self.figure_link(f));
        figure.or_else(|| self.site.pages.iter().find(|p| p.name == name).map(page_link))
    }

    fn system_link(&self, name: &str) -> Link {
        let card = self.site.systems.iter().find(|s| s.name == name);
        let note = card.map(|c| first_sentence(&c.description)).unwrap_or_default();
        Link { href: self.names.system(name), label: name.to_owned(), note }
    }

    fn workload_link(&self, name: &str) -> Link {
        let card = self.site.workloads.iter().find(|w| w.name == name);
        let note = card.map(|c| c.description.clone()).unwrap_or_default();
        Link { href: self.names.workload(name), label: name.to_owned(), note }
    }

    fn figure(&self, i: usize, figure: &'a Figure) -> Result<Made<'a>, ReportError> {
        let (view, file) = view::figure(figure, self.looks, Place::Own)?;
        let title = if figure.title.is_empty() { &figure.id } else { &figure.title };
        let mut context = self.frame(
            &format!("{}.html", figure.id),
            &format!("{}: {title}", figure.id),
            &figure.description,
            std::slice::from_ref(figure),
        )?;
        context.insert("figure", &view);
        context.insert("summary", &self.rows(|row| row.figure == figure.id)?);
        let neighbour = |at: Option<usize>| at.and_then(|at| self.site.figures.get(at)).map(|f| self.figure_link(f));
        context.insert("previous", &neighbour(i.checked_sub(1)));
        context.insert("next", &neighbour(Some(i + 1)));
        let known = |link: &Link| !link.href.is_empty();
        let systems: Vec<Link> = figure.systems.iter().map(|s| self.system_link(s)).filter(known).collect();
        let workloads: Vec<Link> = figure.workloads.iter().map(|w| self.workload_link(w)).filter(known).collect();
        context.insert("systems", &systems);
        context.insert("workloads", &workloads);
        self.page(&figure.id, "figure-page.html", &context, vec![(figure, file)])
    }

    fn system(&self, system: &'a SystemCard) -> Result<Made<'a>, ReportError> {
        let file = self.names.system(&system.name);
        let (figures, drawn) = self.draw(&system.figures)?;
        let mut context = self.frame(&file, &system.name, &system.description, &system.figures)?;
        context.insert(
            "system",
            &SystemWords {
                name: &system.name,
                placement: &system.placement,
                planner: &system.planner,
                description: &system.description,
                source: &system.source,
                options: &system.options,
                notes: &system.notes,
                findings: &system.findings,
            },
        );
        context.insert("figures", &figures);
        context.insert("summary", &self.rows(|row| row.system == system.name)?);
        let figures = self.site.figures.iter().filter(|f| f.systems.contains(&system.name));
        let names = |page: &&Page| page.figures.iter().any(|f| f.systems.contains(&system.name));
        let pages = self.site.pages.iter().filter(names).map(page_link);
        context.insert("shown", &figures.map(|f| self.figure_link(f)).chain(pages).collect::<Vec<_>>());
        self.page(file.trim_end_matches(".html"), "system.html", &context, drawn)
    }

    fn workload(&self, workload: &'a WorkloadCard) -> Result<Made<'a>, ReportError> {
        let file = self.names.workload(&workload.name);
        let mut context = self.frame(&file, &workload.name, &workload.description, &[])?;
        context.insert("workload", workload);
        context.insert("summary", &self.rows(|row| row.dataset == workload.name)?);
        let shown: Vec<&Figure> = self.site.figures.iter().filter(|f| f.workloads.contains(&workload.name)).collect();
        let ran = |card: &&SystemCard| shown.iter().any(|f| f.systems.contains(&card.name));
        let systems: Vec<Link> = self.site.systems.iter().filter(ran).map(|s| self.system_link(&s.name)).collect();
        context.insert("shown", &shown.iter().map(|f| self.figure_link(f)).collect::<Vec<_>>());
        context.insert("systems", &systems);
        self.page(file.trim_end_matches(".html"), "workload.html", &context, Vec::new())
    }

    fn method(&self) -> Result<Made<'a>, ReportError> {
        let mut context = self.frame("method.html", "Method", "How the numbers of this report were made", &[])?;
        context.insert("method", &self.site.method);
        self.page("method", "method.html", &context, Vec::new())
    }

    fn environment(&self) -> Result<Made<'a>, ReportError> {
        let text = "What the numbers of this report were made with";
        let mut context = self.frame("environment.html", "Environment", text, &[])?;
        context.insert("environment", &self.site.environment);
        context.insert("facts", &self.facts());
        context.insert("downloads", &self.site.downloads);
        self.page("environment", "environment.html", &context, Vec::new())
    }

    fn gaps(&self) -> Result<Made<'a>, ReportError> {
        let text = "Cells and values that failed or were skipped, each with its reason";
        let mut context = self.frame("gaps.html", "Without a number", text, &[])?;
        let failures: Vec<FailureView<'_>> = self
            .site
            .failures
            .iter()
            .map(|f| FailureView {
                experiment: &f.experiment,
                href: self.names.figure(&f.experiment),
                cell: &f.cell,
                status: f.status.word(),
                reason: &f.reason,
            })
            .collect();
        context.insert("failures", &failures);
        self.page("gaps", "gaps.html", &context, Vec::new())
    }

    fn runs(&self) -> Result<Made<'a>, ReportError> {
        let text = "The runs that this report was made from, and which of them can be compared";
        let (figures, drawn) = self.draw(&self.site.comparisons)?;
        let mut context = self.frame("runs.html", "Runs", text, &self.site.comparisons)?;
        context.insert("runs", &self.site.runs);
        context.insert("comparability", &self.site.comparability);
        context.insert("figures", &figures);
        self.page("runs", "runs.html", &context, drawn)
    }

    fn facts(&self) -> Vec<Fact<'_>> {
        let site = self.site;
        let facts = [
            ("Command", &site.command, true),
            ("Revision", &site.revision, true),
            ("Backend", &site.backend, false),
            ("Profile", &site.profile, false),
            ("Seed", &site.seed, false),
            ("Made from", &site.created_from, false),
        ];
        let full = facts.into_iter().filter(|(_, value, _)| !value.is_empty());
        full.map(|(name, value, code)| Fact { name, value, code }).collect()
    }

    fn index(&self) -> Result<Made<'a>, ReportError> {
        let site = self.site;
        let mut context = self.frame("index.html", &site.title, &site.subtitle, &site.figures)?;
        context.insert(
            "site",
            &SiteWords {
                title: &site.title,
                subtitle: &site.subtitle,
                question: &site.question,
                verdict: &site.verdict,
            },
        );
        context.insert("pages", &site.pages.iter().map(page_link).collect::<Vec<_>>());
        context.insert("runs", &site.runs.len());
        context.insert("facts", &self.facts());
        let mut drawn = Vec::new();
        if let Some(figure) = &site.picture {
            let (view, file) = view::figure(figure, self.looks, Place::First)?;
            context.insert("picture", &view);
            drawn.push((figure, file));
        }
        let answers = site.answers.iter().map(|a| AnswerView {
            question: &a.question,
            text: &a.text,
            links: a.links.iter().filter_map(|name| self.link(name)).collect(),
        });
        context.insert("answers", &answers.collect::<Vec<_>>());
        let (overview, files) = self.draw(&site.overview)?;
        context.insert("overview", &overview);
        drawn.extend(files);
        context.insert("summary", &self.rows(|_| true)?);
        context.insert("failures", &site.failures.len());
        context.insert("figures", &site.figures.iter().map(|f| self.figure_link(f)).collect::<Vec<_>>());
        context.insert("systems", &site.systems.iter().map(|s| self.system_link(&s.name)).collect::<Vec<_>>());
        context.insert("workloads", &site.workloads.iter().map(|w| self.workload_link(&w.name)).collect::<Vec<_>>());
        self.page("index", "index.html", &context, drawn)
    }
}

fn page_link(page: &Page) -> Link {
    Link { href: format!("{}.html", page.name), label: page.title.clone(), note: page.subtitle.clone() }
}

/// A text up to its first full stop.
fn first_sentence(text: &str) -> String {
    text.split_once(". ").map_or(text, |(first, _)| first).trim_end_matches('.').to_owned()
}
