//! What a request costs by other prices than those it was admitted with, pure: one rounding, as when it was settled.

use crate::event::request::RequestSettled;
use crate::money::{NanoUsd, Price, cost};
use crate::outcome::Outcome;
use crate::usage::{Usage, UsageSource};

/// What other prices make of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repriced {
    /// It costs what it did.
    Same,
    /// It costs something, and there is no price for it, or none that fits 64 bits: it stays.
    Unpriced,
    /// It costs this.
    Costs(NanoUsd),
}

/// What a request costs at `price` that cost `was` so far, earlier adjustments included. Nobody pays for what nobody paid
/// for because of how it ended; where limits kept a part of the cost from the caller he pays no more than he did.
pub fn reprice(settled: &RequestSettled, was: NanoUsd, price: Option<&Price>) -> Repriced {
    if !is_charged(settled) {
        return Repriced::Same;
    }
    let Some(whole) = price.and_then(|price| cost(price, &usage(settled), settled.images)) else {
        return Repriced::Unpriced;
    };
    let allowed = if settled.absorbed_nano_usd > NanoUsd::ZERO {
        whole.min(settled.cost_nano_usd)
    } else {
        whole
    };
    if allowed == was {
        Repriced::Same
    } else {
        Repriced::Costs(allowed)
    }
}

/// Whether the caller pays for it: its answer was whole, or he left while he was given one.
fn is_charged(settled: &RequestSettled) -> bool {
    if settled.usage_source == UsageSource::None {
        return false;
    }
    match settled.outcome {
        Outcome::Ok => true,
        Outcome::ClientGone => {
            settled.ttft_ms.is_some()
                && settled.prices.is_none_or(|prices| {
                    let charged = settled.cost_nano_usd.0.checked_add(settled.absorbed_nano_usd.0);
                    cost(&prices, &usage(settled), settled.images).map(|cost| cost.0) == charged
                })
        }
        _ => false,
    }
}

const fn usage(settled: &RequestSettled) -> Usage {
    Usage {
        input_tokens: settled.input_tokens,
        cached_tokens: settled.cached_tokens,
        cache_write_tokens: settled.cache_write_tokens,
        output_tokens: settled.output_tokens,
        reasoning_tokens: settled.reasoning_tokens,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Envelope;

    const PRICE: Price = Price {
        input: 2_000_000_500,
        cached: 200_000_000,
        cache_write: 0,
        output: 8_000_000_000,
        request: 3,
        image: 7,
    };

    /// A row whose answer was whole, at no price.
    fn settled() -> RequestSettled {
        let text = include_str!("../tests/golden/v1/request.settled.json");
        let envelope: Envelope<RequestSettled> = serde_json::from_str(text).expect("an envelope");
        RequestSettled {
            outcome: Outcome::Ok,
            ttft_ms: Some(3),
            usage_source: UsageSource::Upstream,
            input_tokens: 1_001,
            cached_tokens: 10,
            cache_write_tokens: 5,
            output_tokens: 20,
            images: 2,
            prices: None,
            cost_nano_usd: NanoUsd::ZERO,
            absorbed_nano_usd: NanoUsd::ZERO,
            ..envelope.data
        }
    }

    /// Computed with whole numbers alone: 1001 x 2000.0005 + 10 x 200 + 20 x 8000 + 3 + 2 x 7 = 2164017.5005.
    const WHOLE: NanoUsd = NanoUsd(2_164_018);

    #[test]
    fn a_request_costs_what_the_prices_say_rounded_once() {
        let row = settled();
        assert_eq!(reprice(&row, NanoUsd::ZERO, Some(&PRICE)), Repriced::Costs(WHOLE));
        assert_eq!(reprice(&row, WHOLE, Some(&PRICE)), Repriced::Same);
        assert_eq!(reprice(&row, WHOLE, None), Repriced::Unpriced);
        let free = Price::default();
        assert_eq!(reprice(&row, WHOLE, Some(&free)), Repriced::Costs(NanoUsd::ZERO));
    }

    #[test]
    fn what_nobody_pays_for_stays_free() {
        let cases = [
            (Outcome::UpstreamCut, Some(3), UsageSource::Upstream),
            (Outcome::Timeout, Some(3), UsageSource::Upstream),
            (Outcome::ClientGone, None, UsageSource::Upstream),
            (Outcome::Ok, Some(3), UsageSource::None),
        ];
        for (outcome, ttft_ms, usage_source) in cases {
            let row = RequestSettled {
                outcome,
                ttft_ms,
                usage_source,
                ..settled()
            };
            assert_eq!(
                reprice(&row, NanoUsd::ZERO, Some(&PRICE)),
                Repriced::Same,
                "{outcome:?}"
            );
        }
    }

    #[test]
    fn who_left_while_he_was_answered_pays_unless_he_did_not() {
        let left = |cost| RequestSettled {
            outcome: Outcome::ClientGone,
            prices: Some(PRICE),
            cost_nano_usd: cost,
            ..settled()
        };
        let dearer = Price { request: 4, ..PRICE };
        assert_eq!(
            reprice(&left(WHOLE), WHOLE, Some(&dearer)),
            Repriced::Costs(NanoUsd(WHOLE.0 + 1))
        );
        let unpaid = left(NanoUsd::ZERO);
        assert_eq!(reprice(&unpaid, NanoUsd::ZERO, Some(&dearer)), Repriced::Same);
    }

    #[test]
    fn what_limits_kept_from_the_caller_is_not_charged_later() {
        let row = RequestSettled {
            prices: Some(PRICE),
            cost_nano_usd: NanoUsd(1_000),
            absorbed_nano_usd: NanoUsd(WHOLE.0 - 1_000),
            ..settled()
        };
        let dearer = Price {
            output: 9_000_000_000,
            ..PRICE
        };
        assert_eq!(reprice(&row, NanoUsd(1_000), Some(&dearer)), Repriced::Same);
        let cheap = Price {
            request: 999,
            ..Price::default()
        };
        assert_eq!(
            reprice(&row, NanoUsd(1_000), Some(&cheap)),
            Repriced::Costs(NanoUsd(999))
        );
    }
}
