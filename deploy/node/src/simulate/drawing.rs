//! The outcome of a simulation as a drawing: how many requests had their first token after how long, and below that how
//! many answers were good and how much of what caches could give they gave.

use std::fmt::Write as _;

use router_worker::simulate::report::{Outcome, Report};

/// Where the curves are: left, top, width, height.
const CURVES: (f64, f64, f64, f64) = (80.0, 60.0, 560.0, 300.0);
/// Where the bars begin, from above.
const BARS_TOP: f64 = 450.0;
/// Height of the bars of one policy, with the space below.
const BARS_HEIGHT: f64 = 44.0;
/// Where bars begin and how long they can be.
const BARS: (f64, f64) = (240.0, 480.0);
/// Width of the drawing.
const WIDTH: f64 = 900.0;
/// Colors that can be told apart, also by those who do not see all of them.
const COLORS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999",
];
/// Least time that is drawn, in milliseconds.
const MS_MIN: f64 = 1.0;

/// Draws a report.
pub(super) fn draw(report: &Report) -> String {
    let count = f64::from(u32::try_from(report.policies.len()).unwrap_or(u32::MAX));
    let height = BARS_TOP + BARS_HEIGHT * count + 40.0;
    let mut svg = Svg::default();
    svg.line(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} \
         {height}\" font-family=\"sans-serif\" font-size=\"13\">"
    ));
    svg.line(format_args!(
        "<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>"
    ));
    curves(report, &mut svg);
    bars(report, &mut svg);
    svg.line(format_args!("</svg>"));
    svg.text
}

#[derive(Default)]
struct Svg {
    text: String,
}

impl Svg {
    fn line(&mut self, part: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{part}");
    }

    fn words(&mut self, (x, y): (f64, f64), anchor: &str, words: &str) {
        let words = escaped(words);
        self.line(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
        ));
    }

    fn stroke(&mut self, (from_x, from_y): (f64, f64), (to_x, to_y): (f64, f64), color: &str) {
        self.line(format_args!(
            "<line x1=\"{from_x:.1}\" y1=\"{from_y:.1}\" x2=\"{to_x:.1}\" y2=\"{to_y:.1}\" stroke=\"{color}\"/>"
        ));
    }
}

fn escaped(words: &str) -> String {
    words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn color(place: usize) -> &'static str {
    COLORS.get(place % COLORS.len()).copied().unwrap_or("#000000")
}

/// Times along an axis on which every tenfold is as long.
struct Axis {
    from: f64,
    to: f64,
}

impl Axis {
    /// One on which all times of a report have a place; it begins and ends at a tick.
    fn of(report: &Report) -> Self {
        let times = || {
            let outcomes = report.policies.iter();
            outcomes.flat_map(|outcome| outcome.ttft_ms_percentiles.iter().map(|ms| ms.max(MS_MIN)))
        };
        let (least, most) = (
            times().fold(f64::MAX, f64::min),
            times().fold(MS_MIN * 10.0, f64::max),
        );
        let ticks = ticks();
        let below = ticks.iter().copied().filter(|tick| *tick <= least);
        let above = ticks.iter().copied().filter(|tick| *tick >= most);
        Self {
            from: below.fold(MS_MIN, f64::max),
            to: above.fold(1e12, f64::min),
        }
    }

    fn x(&self, ms: f64) -> f64 {
        let (left, _, width, _) = CURVES;
        let part = (ms.max(self.from) / self.from).log10() / (self.to / self.from).log10();
        left + width * part.clamp(0.0, 1.0)
    }
}

/// 1, 2, 5, 10, 20, 50, … milliseconds.
fn ticks() -> Vec<f64> {
    let tens = (0..12).map(|power| 10_f64.powi(power));
    tens.flat_map(|ten| [ten, 2.0 * ten, 5.0 * ten]).collect()
}

fn time(ms: f64) -> String {
    if ms < 1_000.0 {
        format!("{ms} ms")
    } else {
        format!("{} s", ms / 1_000.0)
    }
}

fn curves(report: &Report, svg: &mut Svg) {
    let (left, top, width, height) = CURVES;
    let y = |share: f64| top + height * (1.0 - share);
    svg.words(
        (left, 30.0),
        "start",
        "Requests that had their first token within this time",
    );
    for tenth in [0_u32, 25, 50, 75, 95, 100] {
        let at = y(f64::from(tenth) / 100.0);
        svg.stroke((left, at), (left + width, at), "#dddddd");
        svg.words((left - 8.0, at + 4.0), "end", &format!("{tenth} %"));
    }
    let axis = Axis::of(report);
    let shown = ticks()
        .into_iter()
        .filter(|tick| (axis.from..=axis.to).contains(tick));
    for tick in shown {
        let x = axis.x(tick);
        svg.stroke((x, top), (x, top + height), "#dddddd");
        svg.words((x, top + height + 18.0), "middle", &time(tick));
    }
    svg.words(
        (left + width / 2.0, top + height + 40.0),
        "middle",
        "time to the first token",
    );
    let x = axis.x(f64::from(u32::try_from(report.slo_ttft_ms).unwrap_or(u32::MAX)));
    svg.line(format_args!(
        "<line x1=\"{x:.1}\" y1=\"{top:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#555555\" stroke-dasharray=\"4 3\"/>",
        top + height
    ));
    svg.words((x, top - 6.0), "middle", "good");
    for (place, outcome) in report.policies.iter().enumerate() {
        let points = outcome.ttft_ms_percentiles.iter().zip(0_u32..);
        let points: Vec<String> = points
            .map(|(ms, hundredth)| format!("{:.1},{:.1}", axis.x(*ms), y(f64::from(hundredth) / 100.0)))
            .collect();
        svg.line(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>",
            points.join(" "),
            color(place)
        ));
    }
    legend(report, svg);
}

fn legend(report: &Report, svg: &mut Svg) {
    let (left, top, width, _) = CURVES;
    let x = left + width + 24.0;
    for ((place, outcome), row) in report.policies.iter().enumerate().zip(0_u32..) {
        let y = top + 12.0 + f64::from(row) * 22.0;
        svg.line(format_args!(
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"16\" height=\"4\" fill=\"{}\"/>",
            y - 6.0,
            color(place)
        ));
        svg.words((x + 24.0, y), "start", &outcome.policy);
    }
}

fn bars(report: &Report, svg: &mut Svg) {
    let (left, _) = BARS;
    svg.words(
        (left, BARS_TOP - 16.0),
        "start",
        "Good answers (dark), and what caches gave of what they could (light)",
    );
    for ((place, outcome), row) in report.policies.iter().enumerate().zip(0_u32..) {
        let y = BARS_TOP + f64::from(row) * BARS_HEIGHT;
        svg.words((left - 10.0, y + 20.0), "end", &outcome.policy);
        for (share, below, opacity) in shares(outcome) {
            bar(svg, (y + below, share), (color(place), opacity));
        }
    }
}

/// The two shares of a policy, where their bars are below its top, and how light they are.
fn shares(outcome: &Outcome) -> Vec<(f64, f64, f64)> {
    let good = (outcome.good_share, 0.0, 1.0);
    let cached = outcome.cached_of_ideal.map(|share| (share, 16.0, 0.45));
    std::iter::once(good).chain(cached).collect()
}

fn bar(svg: &mut Svg, (y, share): (f64, f64), (color, opacity): (&str, f64)) {
    let (left, length) = BARS;
    let long = length * share.clamp(0.0, 1.0);
    svg.line(format_args!(
        "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{long:.1}\" height=\"14\" fill=\"{color}\" \
         fill-opacity=\"{opacity}\"/>"
    ));
    svg.words(
        (left + long + 6.0, y + 12.0),
        "start",
        &format!("{:.1} %", share * 100.0),
    );
}

#[cfg(test)]
mod tests;
