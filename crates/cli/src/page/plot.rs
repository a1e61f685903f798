//! Lines over an axis, as SVG.

use super::escape;
use super::ticks::{label, ticks};
use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 340.0;
/// Room beside the drawing: left, right, above, below.
const ROOM: [f64; 4] = [64.0, 150.0, 34.0, 48.0];
const COLOURS: [&str; 6] = ["#1769aa", "#d1495b", "#2e8b57", "#8e5ea2", "#c98500", "#5b6770"];

/// Lines that share their axes.
pub(crate) struct Plot<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    pub(crate) lines: &'a [Line<'a>],
}

/// Points, from left to right.
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// From numbers to places along one axis.
struct Axis {
    marks: Vec<f64>,
    start: f64,
    length: f64,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>, start: f64, length: f64) -> Self {
        // From zero, so that a small difference does not look like a large one.
        let finite = values.filter(|value| value.is_finite());
        let (least, most) = finite.fold((0.0, 0.0), |(least, most): (f64, f64), v| (least.min(v), most.max(v)));
        Self { marks: ticks(least, most), start, length }
    }

    fn place(&self, value: f64) -> f64 {
        let (first, last) = (self.marks[0], self.marks[self.marks.len() - 1]);
        self.start + (value - first) / (last - first) * self.length
    }
}

impl Plot<'_> {
    pub(super) fn svg(&self) -> String {
        let [left, right, above, below] = ROOM;
        let points = || self.lines.iter().flat_map(|line| line.points.iter());
        let x = Axis::new(points().map(|point| point.0), left, WIDTH - left - right);
        let y = Axis::new(points().map(|point| point.1), HEIGHT - below, above + below - HEIGHT);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             font-size=\"12\" fill=\"currentColor\" role=\"img\" aria-label=\"{}\">\n",
            escape(self.title)
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
        text(&mut svg, (x.start + x.length / 2.0, HEIGHT - 12.0), "middle", self.x);
        for (number, line) in self.lines.iter().enumerate() {
            self.draw(&mut svg, number, line, (&x, &y));
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn draw(&self, svg: &mut String, number: usize, line: &Line<'_>, (x, y): (&Axis, &Axis)) {
        let colour = COLOURS[number % COLOURS.len()];
        let finite = line.points.iter().filter(|point| point.0.is_finite() && point.1.is_finite());
        let places: Vec<String> =
            finite.map(|point| format!("{:.1},{:.1}", x.place(point.0), y.place(point.1))).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            places.join(" ")
        );
        let at = (WIDTH - ROOM[1] + 10.0, ROOM[2] + 8.0 + 18.0 * number as f64);
        let _ =
            writeln!(svg, "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"3\" fill=\"{colour}\"/>", at.0, at.1 - 5.0);
        text(svg, (at.0 + 18.0, at.1), "start", line.name);
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
