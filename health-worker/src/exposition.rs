//! Reads the text in which servers tell their figures (Prometheus' text format, `OpenMetrics` close to it): pure. What a
//! server says is another's, so a line that is not understood is passed over and counted, and nothing is ever trusted to
//! end.
//!
//! ```text
//! # HELP vllm:num_requests_waiting Number of requests waiting.
//! # TYPE vllm:num_requests_waiting gauge
//! vllm:num_requests_waiting{model_name="m",engine="0"} 3.0 1700000000000
//! ```

use std::borrow::Cow;

/// Most lines of one text that are looked at.
const LINES_MAX: usize = 50_000;
/// Longest line.
const LINE_BYTES_MAX: usize = 16 * 1024;
/// Most labels of one line.
const LABELS_MAX: usize = 64;

/// The labels of a figure with their values, as they stand.
type Labels<'t> = Vec<(&'t str, Cow<'t, str>)>;

/// One figure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure<'t> {
    /// Its name.
    pub(crate) name: &'t str,
    /// Its labels, as they stand.
    pub(crate) labels: Labels<'t>,
    /// Its value; it may be no number.
    pub(crate) value: f64,
}

impl Figure<'_> {
    /// The value of a label.
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        let found = self.labels.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_ref())
    }
}

/// What was read of a text.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Figures<'t> {
    /// Those that were understood, in their order.
    pub(crate) figures: Vec<Figure<'t>>,
    /// Lines that were not.
    pub(crate) odd_lines: usize,
}

/// Reads the figures of a text whose names begin as `wanted` says; the others are judged by their names alone.
pub(crate) fn read<'t>(text: &'t str, wanted: &dyn Fn(&str) -> bool) -> Figures<'t> {
    let mut read = Figures::default();
    for line in text.lines().take(LINES_MAX) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, rest)) = name(line).filter(|_| line.len() <= LINE_BYTES_MAX) else {
            read.odd_lines += 1;
            continue;
        };
        if !wanted(name) {
            continue;
        }
        match figure(name, rest) {
            Some(figure) => read.figures.push(figure),
            None => read.odd_lines += 1,
        }
    }
    read
}

/// The name at the beginning of a line, and what follows.
fn name(line: &str) -> Option<(&str, &str)> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':');
    let end = line.bytes().position(|byte| !legal(byte)).unwrap_or(line.len());
    let (name, rest) = line.split_at_checked(end)?;
    let begins = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    begins.then_some((name, rest))
}

fn figure<'t>(name: &'t str, rest: &'t str) -> Option<Figure<'t>> {
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inner) => labels(inner)?,
        None => (Vec::new(), rest),
    };
    // A value, perhaps a moment, perhaps an exemplar behind `#`.
    let told = rest.split('#').next().unwrap_or_default();
    let mut words = told.split_ascii_whitespace();
    let value = number(words.next()?)?;
    let is_moment = words.next().is_none_or(|moment| number(moment).is_some());
    (is_moment && words.next().is_none()).then_some(Figure { name, labels, value })
}

/// The labels up to the closing brace, and what follows it.
fn labels(text: &str) -> Option<(Labels<'_>, &str)> {
    let mut labels = Vec::new();
    let mut rest = text.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        if labels.len() >= LABELS_MAX {
            return None;
        }
        let (label, after) = name(rest)?;
        let quoted = after
            .trim_start()
            .strip_prefix('=')?
            .trim_start()
            .strip_prefix('"')?;
        let (value, after) = quoted_value(quoted)?;
        labels.push((label, value));
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(more) => more.trim_start(),
            None if after.starts_with('}') => after,
            None => return None,
        };
    }
}

/// A value up to its closing quotation mark, its escapes undone, and what follows.
fn quoted_value(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let plain = text.find(['"', '\\'])?;
    let (before, rest) = text.split_at_checked(plain)?;
    if let Some(after) = rest.strip_prefix('"') {
        return Some((Cow::Borrowed(before), after));
    }
    let mut value = before.to_owned();
    let mut letters = rest.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((Cow::Owned(value), rest.get(at + 1..)?)),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

/// A number in either spelling of what is none.
fn number(word: &str) -> Option<f64> {
    match word {
        "NaN" | "Nan" | "nan" => Some(f64::NAN),
        "+Inf" | "Inf" | "inf" | "+inf" => Some(f64::INFINITY),
        "-Inf" | "-inf" => Some(f64::NEG_INFINITY),
        _ => {
            let legal = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
            word.bytes().all(legal).then(|| word.parse().ok()).flatten()
        }
    }
}

#[cfg(test)]
mod tests;
