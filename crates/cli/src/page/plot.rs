//! Plots: lines over an axis, as SVG.

use super::escape;
use super::ticks::{label, powers, ticks};
use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 340.0;
/// Room beside the drawing: left, right, above, below.
const ROOM: [f64; 4] = [64.0, 150.0, 34.0, 48.0];
const COLOURS: [&str; 6] = ["#1769aa", "#d1495b", "#2e8b57", "#8e5ea2", "#c98500", "#5b6770"];

/// Lines that share their axes.
pub(crate) struct Plot {
    title: String,
    x: String,
    y: String,
    /// The scale of the horizontal axis.
    scale: Scale,
    lines: Vec<Line>,
}

/// Points, from left to right.
pub(crate) struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

impl Line {
    pub(crate) fn new(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { name: name.to_owned(), points: points.into_iter().collect() }
    }
}

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scale {
    /// Evenly.
    Linear,
    /// Logarithmic; values below one stand at one.
    Log,
}

/// Maps numbers to positions along one axis.
struct Axis {
    scale: Scale,
    marks: Vec<f64>,
    start: f64,
    length: f64,
}

impl Axis {
    fn new(scale: Scale, values: impl Iterator<Item = f64>, start: f64, length: f64) -> Self {
        // From zero, so that a small difference does not look like a large one.
        let finite = values.filter(|value| value.is_finite());
        let (least, most) = finite.fold((0.0, 0.0), |(least, most): (f64, f64), v| (least.min(v), most.max(v)));
        let marks = if scale == Scale::Log { powers(most) } else { ticks(least, most) };
        Self { scale, marks, start, length }
    }

    fn place(&self, value: f64) -> f64 {
        let even = |value: f64| if self.scale == Scale::Log { value.max(1.0).log10() } else { value };
        let (first, last) = (even(self.marks[0]), even(self.marks[self.marks.len() - 1]));
        self.start + (even(value) - first) / (last - first) * self.length
    }
}

impl Plot {
    /// A plot with even axes.
    pub(crate) fn new(title: &str, x: &str, y: &str, lines: Vec<Line>) -> Self {
        let [title, x, y] = [title, x, y].map(str::to_owned);
        Self { title, x, y, scale: Scale::Linear, lines }
    }

    /// The same plot with a logarithmic horizontal axis.
    pub(crate) fn log(self) -> Self {
        Self { scale: Scale::Log, ..self }
    }

    pub(super) fn svg(&self) -> String {
        let [left, right, above, below] = ROOM;
        let points = || self.lines.iter().flat_map(|line| line.points.iter());
        let x = Axis::new(self.scale, points().map(|point| point.0), left, WIDTH - left - right);
        let y = Axis::new(Scale::Linear, points().map(|point| point.1), HEIGHT - below, above + below - HEIGHT);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             font-size=\"12\" fill=\"currentColor\" role=\"img\" aria-label=\"{}\">\n",
            escape(&self.title)
        );
        text(&mut svg, (left, 16.0), "start", &format!("{}: {}", self.title, self.y));
        for mark in &x.marks {
            let at = x.place(*mark);
            line(&mut svg, (at, HEIGHT - below), (at, above));
            text(&mut svg, (at, HEIGHT - below + 16.0), "middle", &label(*mark));
        }
        for mark in &y.marks {
            let at = y.place(*mark);
            line(&mut svg, (left, at), (WIDTH - right, at));
            text(&mut svg, (left - 6.0, at + 4.0), "end", &label(*mark));
        }
        text(&mut svg, (x.start + x.length / 2.0, HEIGHT - 12.0), "middle", &self.x);
        for (number, line) in self.lines.iter().enumerate() {
            self.draw(&mut svg, number, line, (&x, &y));
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn draw(&self, svg: &mut String, number: usize, line: &Line, (x, y): (&Axis, &Axis)) {
        let colour = COLOURS[number % COLOURS.len()];
        let finite = line.points.iter().filter(|point| point.0.is_finite() && point.1.is_finite());
        let places: Vec<String> =
            finite.map(|point| format!("{:.1},{:.1}", x.place(point.0), y.place(point.1))).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            places.join(" ")
        );
        if line.name.is_empty() {
            return;
        }
        let at = (WIDTH - ROOM[1] + 10.0, ROOM[2] + 8.0 + 18.0 * number as f64);
        let _ =
            writeln!(svg, "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"3\" fill=\"{colour}\"/>", at.0, at.1 - 5.0);
        text(svg, (at.0 + 18.0, at.1), "start", &line.name);
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escape(words));
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"currentColor\" stroke-opacity=\"0.15\"/>",
        from.0, from.1, to.0, to.1
    );
}
