//! Comparisons on paper: differences that are planted, and what must not count as one.

use super::*;

const ALL: Figures = figures(0, 0, 0);

const fn figures(input: i64, output: i64, cost: i64) -> Figures {
    Figures {
        input_tokens: Some(input),
        output_tokens: Some(output),
        cost_nano_usd: Some(cost),
    }
}

fn request(id: &str) -> Key {
    Key::Request {
        request_id: id.to_owned(),
    }
}

fn line(id: &str, figures: Figures) -> Line {
    Line {
        key: request(id),
        figures,
    }
}

fn booked(id: &str, figures: Figures) -> Booked {
    Booked {
        request_id: id.to_owned(),
        client_request_id: None,
        day: "2026-12-01".to_owned(),
        model: "org/m".to_owned(),
        figures,
    }
}

fn ids(items: &[Item]) -> Vec<String> {
    let id = |item: &Item| match &item.key {
        Key::Request { request_id } => request_id.clone(),
        Key::Day { day, model } => format!("{day} {model}"),
    };
    items.iter().map(id).collect()
}

#[test]
fn each_of_twenty_planted_differences_is_told_by_its_request_and_nothing_else_is() {
    let names: Vec<String> = (0..1_000).map(|number| format!("r{number:04}")).collect();
    let figures_of = |number: i64| figures(number + 1, 2 * number, 1_000 * number + 7);
    let numbered = || names.iter().zip(0_i64..);
    let ours: Vec<Booked> = numbered()
        .filter(|(_, number)| number % 200 != 3)
        .map(|(name, number)| booked(name, figures_of(number)))
        .collect();
    let theirs: Vec<Line> = numbered()
        .filter(|(_, number)| number % 200 != 7)
        .map(|(name, number)| {
            let mut billed = figures_of(number);
            match number % 200 {
                11 => billed.cost_nano_usd = billed.cost_nano_usd.map(|cost| cost + 1),
                13 => billed.output_tokens = billed.output_tokens.map(|tokens| tokens - 1),
                _ => {}
            }
            line(name, billed)
        })
        .collect();

    let report = compare(&theirs, &ours, ALL, 0).expect("a report");

    let of = |rest: &[i64]| -> Vec<String> {
        let planted = numbered().filter(|(_, number)| rest.contains(&(number % 200)));
        planted.map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(ids(&report.differing), of(&[11, 13]));
    assert_eq!(ids(&report.missing_in_books), of(&[3]));
    assert_eq!(ids(&report.missing_in_file), of(&[7]));
    assert_eq!(report.differing.len(), 10);
    assert_eq!(report.matched, 980);
    let sum = |lines: &[Line]| {
        lines
            .iter()
            .filter_map(|line| line.figures.cost_nano_usd)
            .sum::<i64>()
    };
    assert_eq!(report.sums.theirs.cost_nano_usd, Some(sum(&theirs)));
    // What only they have, what only we have, and five nano-dollars.
    let (more, less) = (5 * 3_007 + 2_000_000, 5 * 7_007 + 2_000_000);
    assert_eq!(report.sums.difference.cost_nano_usd, Some(more - less + 5));
    assert!(!report.is_equal());
}

#[test]
fn money_may_differ_by_the_tolerance_and_tokens_never() {
    let ours = [booked("a", figures(5, 5, 100))];
    let equal = |billed: Figures, tolerance: u64| {
        compare(&[line("a", billed)], &ours, ALL, tolerance)
            .expect("a report")
            .is_equal()
    };

    assert!(equal(figures(5, 5, 110), 10));
    assert!(equal(figures(5, 5, 90), 10));
    assert!(!equal(figures(5, 5, 111), 10));
    assert!(!equal(figures(5, 5, 89), 10));
    assert!(!equal(figures(6, 5, 100), 1_000));
}

#[test]
fn what_the_file_does_not_tell_is_not_compared() {
    let like = Figures {
        cost_nano_usd: Some(0),
        ..Figures::default()
    };
    let billed = Figures {
        cost_nano_usd: Some(100),
        ..Figures::default()
    };

    let report =
        compare(&[line("a", billed)], &[booked("a", figures(5, 5, 100))], like, 0).expect("a report");

    assert!(report.is_equal());
    assert_eq!((report.matched, report.sums.ours), (1, billed));
}

#[test]
fn lines_of_one_request_are_added_up() {
    let lines = [line("a", figures(5, 0, 40)), line("a", figures(0, 5, 60))];

    let report = compare(&lines, &[booked("a", figures(5, 5, 100))], ALL, 0).expect("a report");

    assert!(report.is_equal());
    assert_eq!(report.matched, 1);
}

#[test]
fn a_caller_s_own_id_is_its_request_unless_another_has_it_too() {
    let own = |id: &str, client: &str| Booked {
        client_request_id: Some(client.to_owned()),
        ..booked(id, figures(1, 1, 1))
    };
    let ours = [own("a", "mine"), own("b", "twice"), own("c", "twice")];
    let lines = [
        line("mine", figures(1, 1, 1)),
        line("twice", figures(1, 1, 1)),
        line("c", figures(1, 1, 1)),
    ];

    let report = compare(&lines, &ours, ALL, 0).expect("a report");

    assert_eq!(report.matched, 2);
    assert_eq!(ids(&report.missing_in_books), ["twice"]);
    assert_eq!(ids(&report.missing_in_file), ["b"]);
}

#[test]
fn calls_of_a_day_and_a_model_are_compared_by_their_sums() {
    let of = |day: &str, model: &str, cost: i64| Booked {
        day: day.to_owned(),
        model: model.to_owned(),
        ..booked(&format!("{day}{model}{cost}"), figures(1, 1, cost))
    };
    let day = |day: &str, model: &str, figures: Figures| Line {
        key: Key::Day {
            day: day.to_owned(),
            model: model.to_owned(),
        },
        figures,
    };
    let ours = [
        of("2026-12-01", "m", 10),
        of("2026-12-01", "m", 20),
        of("2026-12-01", "n", 5),
        of("2026-12-02", "m", 40),
    ];
    let lines = [
        day("2026-12-01", "m", figures(2, 2, 30)),
        day("2026-12-02", "m", figures(1, 1, 41)),
    ];

    let report = compare(&lines, &ours, ALL, 0).expect("a report");

    assert_eq!(report.matched, 1);
    assert_eq!(ids(&report.differing), ["2026-12-02 m"]);
    assert_eq!(report.differing[0].difference, figures(0, 0, 1));
    assert_eq!(ids(&report.missing_in_file), ["2026-12-01 n"]);
}

#[test]
fn a_call_that_counted_and_cost_nothing_is_on_no_bill() {
    let report = compare(&[], &[booked("a", ALL)], ALL, 0).expect("a report");
    assert!(report.is_equal());
    // But one that counted something is, whatever may be tolerated.
    let report = compare(&[], &[booked("a", figures(0, 0, 1))], ALL, 10).expect("a report");
    assert_eq!(ids(&report.missing_in_file), ["a"]);
}

#[test]
fn sums_beyond_what_can_be_kept_are_refused() {
    let lines = [line("a", figures(0, 0, i64::MAX)), line("a", figures(0, 0, 1))];
    assert_eq!(compare(&lines, &[], ALL, 0), Err(TooLarge));
}
