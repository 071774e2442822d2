#!/usr/bin/env python3
"""Opens all pages of a report in headless Chromium without a network and checks what a reader relies on.

usage: check_report.py DIR [--screenshots OUT] [--axe AXE.MIN.JS]

Needs Debian's chromium and chromium-driver and Python 3.9 or later; with --axe also that file of the npm package axe-core. Exits 0 when everything holds, 1 with one line for each
thing that does not, 2 when the check itself could not run.
"""

import argparse
import json
import pathlib
import sys
import urllib.parse

from webdriver import Browser, BrowserError

DESKTOP, TABLET, PHONE, SMALL_PHONE = 1280, 820, 390, 320
SMALLEST_TEXT = 11

STRUCTURE = """
const text = e => e ? e.textContent.trim() : '';
const shown = e => { const r = e.getBoundingClientRect(); return r.width > 0 && r.height > 0 && getComputedStyle(e).visibility === 'visible'; };
const names = e => (e.getAttribute('aria-labelledby') || '').split(/\\s+/).filter(Boolean).map(id => text(document.getElementById(id))).join(' ');
const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
return {
  lang: document.documentElement.lang,
  title: document.title.trim(),
  scripts: document.scripts.length,
  policy: text({textContent: (document.querySelector('meta[http-equiv="Content-Security-Policy"]') || {content: ''}).content}),
  doubled: ids.filter((id, i) => ids.indexOf(id) !== i),
  dead: [...document.querySelectorAll('a[href^="#"]')].map(a => decodeURIComponent(a.hash.slice(1))).filter(id => !document.getElementById(id)),
  files: [...document.querySelectorAll('a[href]:not([href^="#"])')].map(a => a.href),
  headings: [...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(h => +h.tagName[1]),
  landmarks: ['main', 'header', 'footer', 'nav'].filter(tag => !document.querySelector(tag)),
  skip: !!document.querySelector('body > a[href^="#"]'),
  current: document.querySelectorAll('nav.site [aria-current=page]').length,
  ordered: [...document.querySelectorAll('[tabindex]')].filter(e => e.tabIndex > 0).length,
  start: (document.querySelector('a[href],button,input,select,textarea,summary,[tabindex]') || {className: ''}).className,
  described: (document.querySelector('meta[name=description]') || {content: ''}).content.trim(),
  cited: (document.querySelector('meta[name=citation_title]') || {content: ''}).content.trim(),
  headers: document.querySelectorAll('th:not([scope])').length,
  captionless: [...document.querySelectorAll('table')].filter(t => !text(t.caption)).length,
  regions: [...document.querySelectorAll('table')].filter(t => { const r = t.closest('section.scroll'); return !r || r.tabIndex !== 0 || !(r.getAttribute('aria-label') || names(r)); }).length,
  figures: [...document.querySelectorAll('section.fig')].map(f => ({
    id: f.id,
    pictures: [...f.querySelectorAll('svg[role=img]')].filter(shown).map(s => ({
      title: text(s.querySelector(':scope > title')), desc: text(s.querySelector(':scope > desc')), named: names(s) !== '',
      drawn: [...s.querySelectorAll('path,circle,use')].filter(e => { const r = e.getBoundingClientRect(); return r.width + r.height > 4; }).length,
    })),
    panels: f.querySelectorAll('.panel').length,
    rows: [...f.querySelectorAll('table tbody tr')].length,
    table: [...f.querySelectorAll('table')].some(t => shown(t) || t.closest('details')),
    caption: text(f.querySelector('figcaption')),
  })),
};
"""

LAYOUT = """
const small = [], page = document.documentElement;
for (const t of document.querySelectorAll('svg[role=img] text')) {
  const box = t.getBoundingClientRect();
  if (!box.width) continue;
  const svg = t.ownerSVGElement, scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  const size = parseFloat(getComputedStyle(t).fontSize) * scale;
  if (size < arguments[0]) small.push(`${t.textContent.trim()} (${size.toFixed(1)} px)`);
}
const outside = [];
for (const svg of document.querySelectorAll('svg[role=img]')) {
  const frame = svg.getBoundingClientRect();
  if (!frame.width) continue;
  for (const t of svg.querySelectorAll('text')) {
    const box = t.getBoundingClientRect();
    if (box.left < frame.left - 3 || box.right > frame.right + 3) outside.push(t.textContent.trim());
  }
}
const collisions = [];
for (const svg of document.querySelectorAll('svg[role=img]')) {
  if (!svg.getBoundingClientRect().width) continue;
  const boxes = [...svg.querySelectorAll('text')].map(t => [t, t.getBoundingClientRect()]);
  for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
    const [a, b] = [boxes[i][1], boxes[j][1]];
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left), down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (across > 1 && down > 5) collisions.push(`${boxes[i][0].textContent.trim()} / ${boxes[j][0].textContent.trim()}`);
  }
}
return {width: page.scrollWidth, window: page.clientWidth, small, outside, collisions};
"""

CONTRAST = """
const parse = c => (c.match(/[\\d.]+/g) || []).map(Number);
const light = ([r, g, b]) => { const f = v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
const ratio = (a, b) => { const [x, y] = [light(a) + 0.05, light(b) + 0.05]; return Math.max(x, y) / Math.min(x, y); };
const ground = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length && (c.length < 4 || c[3] > 0)) return c; } return [255, 255, 255]; };
const poor = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const node = walk.currentNode, e = node.parentElement;
  if (!node.textContent.trim() || !e.getClientRects().length || e.closest('title,desc')) continue;
  const inSvg = e.tagName === 'text';
  const style = getComputedStyle(e);
  let behind = ground(e);
  if (inSvg) {
    const box = e.getBoundingClientRect();
    const middle = new DOMPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
    const field = [...e.ownerSVGElement.querySelectorAll('path[class*="f-d"],path[class*="f-q"]')]
      .filter(f => f.isPointInFill(middle.matrixTransform(f.getScreenCTM().inverse()))).pop();
    if (field) behind = parse(getComputedStyle(field).fill);
  }
  const got = ratio(parse(inSvg ? style.fill : style.color), behind);
  if (got < 4.5) poor.push(`${node.textContent.trim().slice(0, 40)} (${got.toFixed(2)})`);
}
return {poor, scheme: light(ground(document.body)) > 0.5 ? 'light' : 'dark'};
"""

PRINT_HIDDEN = """
return [...document.querySelectorAll('section.fig')].filter(f => { const t = f.querySelector('table'); return t && !t.getBoundingClientRect().height; }).map(f => f.id);
"""


FOCUS = """
const start = document.querySelector('.skip');
start.focus();
const box = start.getBoundingClientRect();
const seen = box.left >= 0 && box.width > 0;
const bare = [...document.querySelectorAll('a[href],summary,section.scroll')].filter(e => {
  if (!e.getClientRects().length || e.matches('details:not([open]) :not(summary)')) return false;
  e.focus({focusVisible: true, preventScroll: true});
  return document.activeElement !== e || getComputedStyle(e).outlineStyle === 'none';
}).map(e => e.textContent.trim().slice(0, 40));
return {seen, bare};
"""

AXE = """
const done = arguments[arguments.length - 1];
axe.run(document, {preload: false, runOnly: {type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}})
  .then(r => done(r.violations.map(v => `${v.id}: ${v.help} (${v.nodes.length}; ${v.nodes[0].html.slice(0, 120)})`)))
  .catch(e => done([String(e)]));
"""


class Checks:
    """Collects what does not hold."""

    def __init__(self):
        self.failed = []
        self.passed = 0

    def that(self, holds, message):
        if holds:
            self.passed += 1
        else:
            self.failed.append(message)

    def none(self, items, what):
        shown = "; ".join(str(item) for item in items[:5])
        more = f" and {len(items) - 5} more" if len(items) > 5 else ""
        self.that(not items, f"{what}: {shown}{more}")


def requests(browser):
    """Addresses requested since the last call."""
    addresses = []
    for entry in browser.log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
            parameters = message["params"]
            addresses.append(parameters.get("request", parameters).get("url", ""))
    return addresses


def check_structure(checks, browser, where):
    page = browser.run(STRUCTURE)
    checks.that(page["lang"], f"{where}: the page does not say its language")
    checks.that(page["title"], f"{where}: the page has no title")
    checks.that(page["scripts"] == 0, f"{where}: the page holds {page['scripts']} scripts")
    checks.that("default-src 'none'" in page["policy"], f"{where}: no Content-Security-Policy with default-src 'none'")
    checks.none(page["doubled"], f"{where}: ids used twice")
    checks.none(page["dead"], f"{where}: links to anchors that do not exist")
    checks.none(page["landmarks"], f"{where}: landmarks missing")
    checks.that(page["skip"], f"{where}: no skip link")
    levels = page["headings"]
    checks.that(levels and levels[0] == 1 and levels.count(1) == 1, f"{where}: headings do not start with one h1")
    jumps = [f"h{a} to h{b}" for a, b in zip(levels, levels[1:]) if b > a + 1]
    checks.none(jumps, f"{where}: heading levels skipped")
    checks.that(page["headers"] == 0, f"{where}: {page['headers']} header cells without scope")
    checks.that(page["captionless"] == 0, f"{where}: {page['captionless']} tables without a caption")
    checks.that(page["regions"] == 0, f"{where}: {page['regions']} tables outside a named, focusable region")
    checks.that(page["start"] == "skip", f"{where}: the keyboard does not start at the skip link")
    checks.that(page["ordered"] == 0, f"{where}: {page['ordered']} elements that change the order of the keyboard")
    checks.that(page["current"] <= 1, f"{where}: {page['current']} links of the navigation are the current page")
    checks.that(page["described"] and page["cited"], f"{where}: no description or citation in the head")
    for figure in page["figures"]:
        name = f"{where}, {figure['id']}"
        pictures = figure["pictures"]
        checks.that(
            len(pictures) == figure["panels"],
            f"{name}: {len(pictures)} pictures visible for {figure['panels']} panels",
        )
        for picture in pictures:
            checks.that(picture["title"], f"{name}: a picture without a title")
            checks.that(picture["desc"], f"{name}: a picture without a description")
            checks.that(picture["named"], f"{name}: a picture that does not refer to its title")
            checks.that(picture["drawn"] > 0, f"{name}: an empty picture")
        checks.that(figure["table"] and figure["rows"] > 0, f"{name}: no table of data")
        checks.that(figure["caption"], f"{name}: no caption")
    return page


def check_files(checks, folder, addresses):
    for address in sorted(set(addresses)):
        parts = urllib.parse.urlsplit(address)
        path = pathlib.Path(urllib.parse.unquote(parts.path))
        checks.that(parts.scheme == "file", f"link leaves the folder: {address}")
        inside = folder in path.parents
        checks.that(inside and path.exists(), f"link to a file that is not in the report: {address}")
        if parts.fragment and path.exists():
            checks.that(f'id="{parts.fragment}"' in path.read_text(), f"link to an anchor that does not exist: {address}")


def check_layout(checks, browser, where):
    layout = browser.run(LAYOUT, SMALLEST_TEXT)
    checks.that(
        layout["width"] <= layout["window"],
        f"{where}: the page scrolls sideways, {layout['width']} px in a window of {layout['window']} px",
    )
    checks.none(layout["small"], f"{where}: text in figures below {SMALLEST_TEXT} px")
    checks.none(layout["outside"], f"{where}: text that leaves its figure")
    checks.none(layout["collisions"], f"{where}: text over text")


VIEWS = [
    ("light", DESKTOP, False),
    ("dark", DESKTOP, True),
    ("tablet", TABLET, False),
    ("phone", PHONE, False),
    ("phone-dark", PHONE, True),
    ("small-phone", SMALL_PHONE, False),
]
# Pages that are made alike, by the beginning of their names: each is seen in these views.
ALIKE = {"system-": ("light", "phone-dark"), "workload-": ("light", "phone-dark")}


def check(browser, file, screenshots, axe, checks):
    """Checks one page; returns the pictures on it."""
    folder, address, stem = file.parent, file.as_uri(), file.stem
    first = stem == "index"
    only = next((views for start, views in ALIKE.items() if stem.startswith(start)), None)

    def named(name):
        return screenshots / (name if first else f"{stem}-{name}")

    requests(browser)
    page = None
    asked = []
    for name, width, dark in VIEWS:
        if only and name not in only:
            continue
        browser.emulate(width, dark=dark, phone=width <= PHONE)
        browser.open(address)
        where = f"{file.name}, {name}"
        page = check_structure(checks, browser, where)
        if width >= PHONE:
            check_layout(checks, browser, where)
        colours = browser.run(CONTRAST)
        checks.that(colours["scheme"] == ("dark" if dark else "light"), f"{where}: the page is {colours['scheme']}")
        checks.none(colours["poor"], f"{where}: contrast below 4.5")
        asked += requests(browser)
        if screenshots:
            browser.screenshot(named(f"{name}.png"))
        if name == "light":
            focus = browser.run(FOCUS)
            checks.that(focus["seen"], f"{where}: the skip link cannot be seen when it has the focus")
            checks.none(focus["bare"], f"{where}: the focus cannot be seen on")
        if axe and name in ("light", "phone-dark"):
            browser.run(axe)
            checks.none(browser.run_async(AXE), f"{where}: axe-core")
    check_files(checks, folder, page["files"])
    browser.emulate(720, media="print")
    checks.none(browser.run(PRINT_HIDDEN), f"{file.name}, print: figures whose table is hidden")
    if screenshots:
        browser.screenshot(named("print.png"))
    browser.emulate(DESKTOP)
    pdf = browser.pdf()
    least = 20_000 if first else 5_000
    checks.that(pdf.startswith(b"%PDF-") and len(pdf) > least, f"{file.name}, print: no usable PDF, {len(pdf)} bytes")
    if screenshots:
        named("print.pdf").write_bytes(pdf)
    allowed = ("file://", "data:", "about:", "chrome://")
    checks.that(any(a == address for a in asked), f"{file.name}: the record of requests lacks the page itself")
    checks.none(sorted({a for a in asked if not a.startswith(allowed)}), f"{file.name}: requests that leave the folder")
    faults = [e["message"] for e in browser.log("browser") if e["level"] in ("SEVERE", "WARNING")]
    checks.none(sorted(set(faults)), f"{file.name}: messages on the console")
    return sum(len(figure["pictures"]) for figure in page["figures"])


def main():
    parser = argparse.ArgumentParser(description="Checks a report in headless Chromium without a network.")
    parser.add_argument("folder", type=pathlib.Path, metavar="DIR", help="folder that holds index.html")
    parser.add_argument("--screenshots", type=pathlib.Path, metavar="OUT", help="folder for PNGs and a PDF")
    parser.add_argument("--axe", type=pathlib.Path, metavar="FILE", help="axe.min.js of axe-core: its rules are checked too")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if not (folder / "index.html").is_file():
        print(f"{folder} holds no index.html; give the folder of a report", file=sys.stderr)
        return 2
    if arguments.screenshots:
        arguments.screenshots.mkdir(parents=True, exist_ok=True)
    checks = Checks()
    axe = arguments.axe.read_text() if arguments.axe else None
    pictures = 0
    try:
        with Browser() as browser:
            browser.devtools("Network.enable")
            for file in sorted(folder.glob("*.html")):
                pictures += check(browser, file, arguments.screenshots, axe, checks)
        checks.that(pictures > 0, "no page has a picture")
    except BrowserError as error:
        print(f"the browser check could not run: {error}", file=sys.stderr)
        return 2
    for message in checks.failed:
        print(f"failed: {message}", file=sys.stderr)
    print(f"{folder.name}: {checks.passed} checks passed, {len(checks.failed)} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
