//! Tests of reading figures: what is well formed, what is odd, and anything at all.

use proptest::prelude::*;

use super::*;

fn all(text: &str) -> Figures<'_> {
    read(text, &|_| true)
}

fn one(line: &str) -> Figure<'_> {
    let mut read = all(line);
    assert_eq!((read.figures.len(), read.odd_lines), (1, 0), "{line}");
    read.figures.remove(0)
}

#[test]
fn a_figure_has_a_name_labels_and_a_value() {
    let figure = one(r#"vllm:waiting{model_name="a\"b\\c\nd", engine = "0",} 3.5 1700000000000"#);

    assert_eq!(figure.name, "vllm:waiting");
    assert_eq!(figure.label("model_name"), Some("a\"b\\c\nd"));
    assert_eq!(figure.label("engine"), Some("0"));
    assert_eq!(figure.label("other"), None);
    assert!((figure.value - 3.5).abs() < f64::EPSILON);
}

#[test]
fn values_are_numbers_in_every_spelling() {
    for (word, value) in [
        ("0", 0.0),
        ("1e3", 1_000.0),
        ("-2.50", -2.5),
        ("+Inf", f64::INFINITY),
        ("-Inf", f64::NEG_INFINITY),
    ] {
        let line = format!("a {word}");
        assert!((one(&line).value.total_cmp(&value)).is_eq(), "{word}");
    }
    assert!(one("a NaN").value.is_nan());
}

#[test]
fn comments_empty_lines_and_exemplars_are_no_figures() {
    let read =
        all("# HELP a b\n# TYPE a gauge\n\n  \na 1\nb_bucket{le=\"1\"} 2 # {trace=\"x\"} 0.5 1.0\n# EOF\n");

    let told: Vec<(&str, f64)> = read
        .figures
        .iter()
        .map(|figure| (figure.name, figure.value))
        .collect();
    assert_eq!(told, [("a", 1.0), ("b_bucket", 2.0)]);
    assert_eq!(read.odd_lines, 0);
}

#[test]
fn an_odd_line_costs_itself_alone() {
    let odd = [
        "1a 2",
        "{x=\"y\"} 1",
        "a",
        "a b",
        "a 1 b",
        "a 1 2 3",
        "a{x} 1",
        "a{x=y} 1",
        "a{x=\"y} 1",
        "a{x=\"y\" 1",
        "a{x=\"y\\",
        "a{x=\"y\";z=\"q\"} 1",
        "a 0x10",
        "a infinity",
        "<html>",
        "ä 1",
    ];
    for line in odd {
        let text = format!("before 1\n{line}\nafter 2\n");
        let read = all(&text);
        assert_eq!((read.figures.len(), read.odd_lines), (2, 1), "{line}");
    }
}

#[test]
fn what_is_not_wanted_is_not_read() {
    let read = read("a 1\nb{broken 2\nb 3\n", &|name| name == "a");
    assert_eq!((read.figures.len(), read.odd_lines), (1, 0));
}

#[test]
fn what_has_no_bound_is_cut() {
    let many: Vec<String> = (0..=LABELS_MAX).map(|n| format!("l{n}=\"v\",")).collect();
    let many = many.concat();
    assert_eq!(all(&format!("a{{{many}}} 1")).odd_lines, 1);
    assert_eq!(
        all(&format!("a{{x=\"{}\"}} 1", "y".repeat(LINE_BYTES_MAX))).odd_lines,
        1
    );
    let lines = "a 1\n".repeat(LINES_MAX + 10);
    assert_eq!(all(&lines).figures.len(), LINES_MAX);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Any text at all is read to its end, and says nothing of more lines than it has.
    #[test]
    fn anything_is_read(text in r#"([a-z:_0-9{}=",\\ .#+\-eN\n]|\PC){0,200}"#) {
        let read = all(&text);
        prop_assert!(read.figures.len() + read.odd_lines <= text.lines().count());
    }

    /// What is written as it should be comes back, whatever the labels hold; cut anywhere, it is read without harm.
    #[test]
    fn what_is_written_comes_back(
        name in "[a-zA-Z_:][a-zA-Z0-9_:]{0,20}",
        labels in prop::collection::vec(("[a-z_][a-z0-9_]{0,8}", "\\PC{0,12}"), 0..5),
        value in -1.0e12_f64..1.0e12,
        cut in 0_usize..200,
    ) {
        let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let written: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let line = format!("{name}{{{}}} {value}", written.join(","));
        let read = all(&line);
        prop_assert_eq!(read.figures.len(), 1);
        let figure = &read.figures[0];
        prop_assert_eq!(figure.name, name.as_str());
        prop_assert_eq!(figure.value.to_bits(), value.to_bits());
        let told: Vec<(&str, &str)> = figure.labels.iter().map(|(name, value)| (*name, value.as_ref())).collect();
        let meant: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        prop_assert_eq!(told, meant);
        let cut: String = line.chars().take(cut).collect();
        let _ = all(&cut);
    }
}
