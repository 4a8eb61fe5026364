//! Files as providers may write them, and what is wrong with others.

use super::*;

const DAYS: (&str, &str) = ("2026-12-01", "2026-12-03");

fn mapped(pairs: &str) -> Result<Mapping, UsageError> {
    let pairs: Vec<String> = pairs.split(',').map(str::to_owned).collect();
    Mapping::parse(&pairs)
}

fn read_as(pairs: &str, text: &str) -> Result<Lines, UsageError> {
    read(text.as_bytes(), &mapped(pairs)?, DAYS)
}

#[test]
fn columns_are_found_by_name_added_up_and_rounded_once() {
    let text = "\u{feff}\"Cost, USD\",id,in,cached,out\r\n\"0.0000000015\",\"a\"\"b\",5,7,3\r\n1.5e-3,c,,1200.0,0\r\n";

    let read = read_as("request_id=id,input=in+cached,output=out", text).expect("lines");

    let line = |id: &str, input: i64, output: i64| Line {
        key: Key::Request {
            request_id: id.to_owned(),
        },
        figures: Figures {
            input_tokens: Some(input),
            output_tokens: Some(output),
            cost_nano_usd: None,
        },
    };
    assert_eq!(read.lines, [line("a\"b", 12, 3), line("c", 1_200, 0)]);

    let read = read_as(
        "request_id=id,cost=usd",
        "id,usd\na,0.0000000015\nb,1.5e-3\nc,-2\n",
    )
    .expect("lines");
    let costs: Vec<Option<i64>> = read.lines.iter().map(|line| line.figures.cost_nano_usd).collect();
    assert_eq!(costs, [Some(2), Some(1_500_000), Some(-2_000_000_000)]);
}

#[test]
fn lines_of_other_days_are_left_out_and_counted() {
    let text =
        "when,model,usd\n2026-11-30T23:59:59Z,m,1\n2026-12-01 00:00,m,2\n2026-12-02,m,3\n2026-12-03,m,4\n";

    let read = read_as("day=when,model=model,cost=usd", text).expect("lines");

    let days: Vec<&Key> = read.lines.iter().map(|line| &line.key).collect();
    let key = |day: &str| Key::Day {
        day: day.to_owned(),
        model: "m".to_owned(),
    };
    assert_eq!(days, [&key("2026-12-01"), &key("2026-12-02")]);
    assert_eq!(read.outside, 2);
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_its_column() {
    for (pairs, text, told) in [
        (
            "request_id=id,cost=usd",
            "id,usd\na,1\nb,$2\n",
            "line 3: usd is \"$2\"",
        ),
        (
            "request_id=id,cost=usd",
            "id,usd\na,1\n,2\n",
            "line 3: id is empty",
        ),
        ("request_id=id,cost=eur", "id,usd\n", "the file has no column eur"),
        (
            "request_id=id,input=in",
            "id,in\na,1.5\n",
            "line 2: in is \"1.5\"",
        ),
        ("request_id=id,input=in", "id,in\na,-1\n", "line 2: in is \"-1\""),
        (
            "day=when,model=model,cost=usd",
            "when,model,usd\n01.12.2026,m,1\n",
            "line 2: when is \"01.12.2026\"",
        ),
        ("request_id=id,cost=usd", "id,usd\na,1,2\n", "the file is no CSV"),
    ] {
        let problem = read_as(pairs, text).expect_err(text).to_string();
        assert!(problem.starts_with(told), "{problem}");
    }
}

#[test]
fn a_mapping_says_what_belongs_together_and_what_is_compared() {
    for (pairs, told) in [
        ("cost=usd", "--map needs request_id, or day and model"),
        ("day=when,cost=usd", "--map needs request_id, or day and model"),
        ("request_id=id", "--map needs at least one of input, output, cost"),
        ("request_id=id,price=usd", "--map price is none of"),
        ("request_id=id,cost=usd,cost=eur", "--map names cost twice"),
        ("request_id", "--map request_id is not FIELD=COLUMN"),
        ("request_id=,cost=usd", "--map request_id= is not FIELD=COLUMN"),
    ] {
        let problem = mapped(pairs).expect_err(pairs).to_string();
        assert!(problem.starts_with(told), "{problem}");
    }
}

#[test]
fn days_are_those_of_the_calendar() {
    assert!(is_day("2026-12-01"));
    for text in ["2026-12-32", "2026-1-01", "2026-12-01T00:00:00Z", "", "today"] {
        assert!(!is_day(text), "{text}");
    }
}
