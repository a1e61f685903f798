//! Reports as one self-contained HTML page: words, tables and plots, with nothing to fetch from anywhere.

mod plot;
mod ticks;

pub(crate) use plot::{Line, Plot};

use std::fmt::Write as _;

/// A page under construction.
pub(crate) struct Page {
    title: String,
    body: String,
}

impl Page {
    pub(crate) fn new(title: &str) -> Self {
        Self { title: escape(title), body: String::new() }
    }

    /// A heading.
    pub(crate) fn heading(mut self, text: &str) -> Self {
        let _ = writeln!(self.body, "<h2>{}</h2>", escape(text));
        self
    }

    /// A paragraph.
    pub(crate) fn text(mut self, text: &str) -> Self {
        let _ = writeln!(self.body, "<p>{}</p>", escape(text));
        self
    }

    /// A table. The first cell of a row names it.
    pub(crate) fn table(mut self, head: &[&str], rows: &[Vec<String>]) -> Self {
        let cells = |tag: &str, cells: &mut dyn Iterator<Item = &str>| -> String {
            cells.map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect()
        };
        let _ = writeln!(self.body, "<table>\n<tr>{}</tr>", cells("th", &mut head.iter().copied()));
        for row in rows {
            let _ = writeln!(self.body, "<tr>{}</tr>", cells("td", &mut row.iter().map(String::as_str)));
        }
        self.body.push_str("</table>\n");
        self
    }

    /// A plot.
    pub(crate) fn plot(mut self, plot: &Plot) -> Self {
        self.body.push_str(&plot.svg());
        self
    }

    /// The whole page.
    pub(crate) fn html(&self) -> String {
        let Self { title, body } = self;
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}</body>\n</html>\n"
        )
    }
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222;background:#fff}\
table{border-collapse:collapse;margin:1em 0}th,td{padding:.25em .9em;border-bottom:1px solid #ddd;text-align:right}\
th:first-child,td:first-child{text-align:left}svg{display:block;margin:1em 0;max-width:100%}\
@media(prefers-color-scheme:dark){body{background:#16181c;color:#ddd}th,td{border-color:#444}}";

/// Text that means nothing to HTML.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_trace_is_called_cannot_become_part_of_the_page() {
        let lines = vec![Line::new("<b>", [(1.0, 2.0), (3.0, 4.0)])];
        let plot = Plot::new("a < b", "size & more", "%", lines).log();
        let page = Page::new("<script>").heading("<h>").text("a&b").table(&["<"], &[vec![">".into()]]).plot(&plot);
        let html = page.html();
        for raw in ["<script>", "<h>", "a&b", "<b>", "size & more"] {
            assert!(!html.contains(raw), "{raw}");
        }
    }

    #[test]
    fn a_page_fetches_nothing() {
        let html = Page::new("t").plot(&Plot::new("p", "x", "y", vec![Line::new("one", [(0.0, 0.0)])])).html();
        for word in ["http:", "https:", "src=", "href=", "@import", "url("] {
            // The name of SVG's language is no address to fetch.
            assert!(!html.replace("http://www.w3.org/2000/svg", "").contains(word), "{word}");
        }
    }
}
