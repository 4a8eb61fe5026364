//! Budgets are kept and used, whatever legs cost and however long they take.

use proptest::prelude::*;

use super::*;

mod simulated;

fn offered(cost: u64, ttft_us: u64) -> Offered {
    Offered {
        cost_nano_usd: Some(cost),
        ttft_us: Some(ttft_us),
        samples: 100,
        ..Offered::default()
    }
}

fn market(legs: &[(u64, u64)]) -> Market {
    Market {
        alpha_micro: 750_000,
        balance_nano_usd: 0,
        samples_min: 10,
        unprofiled_us: 5_000_000,
        legs: legs.iter().map(|(cost, ttft)| offered(*cost, *ttft)).collect(),
    }
}

fn all(market: &Market) -> Vec<usize> {
    (0..market.legs.len()).collect()
}

fn chosen(market: &Market, draw: u64) -> Chosen {
    choose(market, &all(market), &mut Draws::new(draw)).expect("there are legs")
}

#[test]
fn the_quickest_that_the_budget_pays_for_is_asked_where_nothing_quicker_is_dearer() {
    let market = market(&[(100, 900_000), (110, 200_000), (200, 400_000)]);
    for draw in 0..40 {
        assert_eq!(
            chosen(&market, draw),
            Chosen {
                leg: 1,
                way: Way::Within
            }
        );
    }
    // What it leaves is nobody's.
    assert_eq!(market.change(1), 0);
}

#[test]
fn calls_at_the_cheaper_leg_pay_for_calls_at_the_quicker_one() {
    let mut market = market(&[(100, 900_000), (400, 300_000)]);
    let mut legs = Vec::new();
    for draw in 0..12 {
        let chosen = chosen(&market, draw);
        market.balance_nano_usd += market.change(chosen.leg);
        legs.push((chosen.leg, chosen.way));
        assert!(market.balance_nano_usd >= 0);
    }
    let (save, spend) = ((0, Way::Saved), (1, Way::Spent));
    let turn = [save, spend, spend, spend];
    assert_eq!(legs, [turn, turn, turn].concat());
    assert_eq!(market.balance_nano_usd, 0);
}

#[test]
fn the_ends_of_the_budget_are_the_cheapest_and_the_quickest() {
    let mut market = market(&[(100, 900_000), (400, 300_000), (50, 2_000_000)]);
    market.alpha_micro = 0;
    assert_eq!(
        chosen(&market, 3),
        Chosen {
            leg: 2,
            way: Way::Within
        }
    );
    market.alpha_micro = ONE_MICRO;
    assert_eq!(
        chosen(&market, 3),
        Chosen {
            leg: 1,
            way: Way::Within
        }
    );
}

#[test]
fn a_debt_is_repaid_before_anything_dear_is_bought() {
    let mut market = market(&[(100, 900_000), (400, 300_000)]);
    market.balance_nano_usd = -450;
    let mut legs = Vec::new();
    for draw in 0..4 {
        let chosen = chosen(&market, draw);
        market.balance_nano_usd += market.change(chosen.leg);
        legs.push(chosen.leg);
    }
    assert_eq!(legs, [0, 0, 0, 1]);
    // Also by what would be nobody's else.
    let mut cheap = self::market(&[(100, 300_000), (400, 900_000)]);
    cheap.balance_nano_usd = -150;
    assert_eq!(chosen(&cheap, 0).leg, 0);
    assert_eq!(cheap.change(0), 150);
    assert_eq!(cheap.change(1), -75);
}

#[test]
fn a_leg_without_a_free_slot_is_asked_only_when_no_other_takes_calls() {
    let mut market = market(&[(0, 300_000), (400, 900_000)]);
    assert_eq!(chosen(&market, 0).leg, 0);
    market.legs[0].full = true;
    assert_eq!(chosen(&market, 0).leg, 1);
    assert_eq!(market.change(1), 0, "it is the only one to measure a budget by");
    market.legs[1].full = true;
    assert_eq!(chosen(&market, 0).leg, 0);
}

#[test]
fn a_leg_without_a_price_counts_as_the_dearest() {
    let mut market = market(&[(100, 900_000), (400, 300_000), (0, 100_000)]);
    market.legs[2].cost_nano_usd = None;
    assert_eq!(market.cost(&market.legs[2]), 400);
    assert_eq!(chosen(&market, 0).leg, 0, "the first call saves for it");
    market.balance_nano_usd = 75;
    assert_eq!(chosen(&market, 0).leg, 2);
}

#[test]
fn legs_that_are_not_known_are_tried_by_some_until_they_are_and_by_no_more() {
    let mut market = market(&[(100, 900_000), (400, 300_000)]);
    market.legs[1].samples = 3;
    let tried = |market: &Market| {
        let legs = (0..400).map(|draw| chosen(market, draw));
        legs.filter(|chosen| chosen.way == Way::Tried && chosen.leg == 1)
            .count()
    };
    let some = tried(&market);
    assert!((70..130).contains(&some), "{some} of 400");
    market.legs[1].calls = 7;
    assert_eq!(tried(&market), 0, "those that run will tell");
    market.legs[1].calls = 0;
    market.balance_nano_usd = -300;
    assert_eq!(tried(&market), 0, "a debt of a call is enough");
}

proptest! {
    #[test]
    fn what_is_spent_stays_within_the_budgets_and_uses_them_up_where_that_helps(
        prices in proptest::collection::vec((1_u64..1_000, 1_u64..5_000_000), 2..5),
        sizes in proptest::collection::vec(1_u64..10_000, 200..300),
        alpha_micro in 0_u64..=ONE_MICRO,
    ) {
        let (mut balance, mut spent, mut budgets, mut largest) = (0_i64, 0_i64, 0_i64, 0_i64);
        let mut always_mixed = true;
        for (draw, size) in (0_u64..).zip(sizes) {
            let legs: Vec<(u64, u64)> = prices.iter().map(|(price, ttft)| (price * size, *ttft)).collect();
            let market = Market { alpha_micro, balance_nano_usd: balance, ..market(&legs) };
            let chosen = chosen(&market, draw);
            let places = all(&market);
            let budget = market.budget_among(&places);
            always_mixed &= market.solve(&places, budget).is_some_and(|found| found.dear.is_some());
            balance += market.change(chosen.leg);
            spent += market.at(chosen.leg).0;
            budgets += budget;
            largest = largest.max(market.legs.iter().map(|leg| market.cost(leg)).max().unwrap_or(0));
        }
        prop_assert!(spent <= budgets, "{spent} of {budgets}");
        prop_assert!(balance >= 0);
        if always_mixed {
            prop_assert!(budgets - spent <= 2 * largest, "{spent} of {budgets}, at most {largest} a call");
        }
    }

    #[test]
    fn a_choice_is_one_of_those_that_are_open_and_depends_on_nothing_else(
        legs in proptest::collection::vec((proptest::option::of(0_u64..1_000), proptest::option::of(0_u64..5_000_000), 0_u64..20, 0_u64..20, any::<bool>()), 1..6),
        balance_nano_usd in -5_000_i64..5_000,
        draw in any::<u64>(),
    ) {
        let legs = legs.into_iter().map(|(cost_nano_usd, ttft_us, samples, calls, full)| Offered { cost_nano_usd, ttft_us, samples, calls, full });
        let market = Market { balance_nano_usd, legs: legs.collect(), ..market(&[]) };
        let open: Vec<usize> = (0..market.legs.len()).filter(|place| (draw >> place) & 1 == 0).collect();
        let once = choose(&market, &open, &mut Draws::new(draw));
        prop_assert_eq!(once, choose(&market, &open, &mut Draws::new(draw)));
        prop_assert_eq!(once.is_none(), open.is_empty());
        if let Some(chosen) = once {
            prop_assert!(open.contains(&chosen.leg));
        }
    }
}
