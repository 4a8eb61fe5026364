//! The price list that LiteLLM publishes, read exactly: US dollars per token as decimals such as 1.5e-07, to nano-dollars
//! per million tokens. No float is in between; what cannot be kept exactly is told and left out.

use std::collections::BTreeMap;

use schemas::money::NanoUsd;
use serde_json::value::RawValue;

use crate::decimal::{self, DIGITS_MAX};

/// Prices by token, and what they are called here.
const PER_TOKEN: [(&str, &str); 4] = [
    ("input_cost_per_token", "prompt"),
    ("output_cost_per_token", "completion"),
    ("cache_read_input_token_cost", "input_cache_reads"),
    ("cache_creation_input_token_cost", "input_cache_writes"),
];
/// Prices each, and what they are called here.
const EACH: [(&str, &str); 2] = [
    ("input_cost_per_request", "request"),
    ("input_cost_per_image", "image"),
];
/// What the names of amounts have in them.
const WORDS: [&str; 4] = ["cost", "price", "pricing", "uplift"];
/// Amounts by the length of the prompt, instead of all others.
const TIERED: &str = "tiered_pricing";
/// The entry that only shows what there may be.
const SAMPLE: &str = "sample_spec";
/// Decimal places from a dollar per token to a nano-dollar per million.
const PLACES_PER_TOKEN: i32 = 15;
/// Decimal places from a dollar to a nano-dollar.
const PLACES_EACH: i32 = 9;

/// What an entry says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prices {
    /// A `pricing` block: decimal strings of USD, per million tokens or each.
    pub pricing: BTreeMap<&'static str, String>,
    /// Prices that a `pricing` block has no place for.
    pub other: Vec<String>,
}

/// Why an entry cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// A price that is no amount that could be kept exactly.
    #[error("{field} is {text}, which cannot be kept exactly")]
    Inexact {
        /// Its name.
        field: String,
        /// What it says.
        text: String,
    },
    /// Prices by the length of the prompt, which a price has no place for: its other amounts are not what calls cost.
    #[error("{field} is in steps, which a price has no place for")]
    Tiered {
        /// Its name.
        field: String,
    },
}

/// The file is no such list.
#[derive(Debug, thiserror::Error)]
#[error("the file is not LiteLLM's list of prices: an object with an entry for each model")]
pub struct NoList(#[source] serde_json::Error);

/// Every entry of a list that prices something, by its name.
pub fn read(text: &str) -> Result<BTreeMap<String, Result<Prices, Unusable>>, NoList> {
    let entries: BTreeMap<String, &RawValue> = serde_json::from_str(text).map_err(NoList)?;
    let mut found = BTreeMap::new();
    for (name, entry) in entries {
        if name == SAMPLE {
            continue;
        }
        let fields: BTreeMap<String, &RawValue> = serde_json::from_str(entry.get()).map_err(NoList)?;
        match prices(&fields) {
            Ok(prices) if prices.pricing.is_empty() && prices.other.is_empty() => {}
            prices => {
                found.insert(name, prices);
            }
        }
    }
    Ok(found)
}

fn prices(fields: &BTreeMap<String, &RawValue>) -> Result<Prices, Unusable> {
    let mut found = Prices::default();
    let known = PER_TOKEN
        .iter()
        .map(|names| (names, PLACES_PER_TOKEN))
        .chain(EACH.iter().map(|names| (names, PLACES_EACH)));
    for ((theirs, ours), places) in known {
        let Some(text) = fields
            .get(*theirs)
            .map(|raw| raw.get())
            .filter(|text| *text != "null")
        else {
            continue;
        };
        let nano =
            decimal::exactly(text.trim().trim_matches('"'), places).ok_or_else(|| Unusable::Inexact {
                field: (*theirs).to_owned(),
                text: text.chars().take(DIGITS_MAX).collect(),
            })?;
        found.pricing.insert(ours, NanoUsd(nano).usd());
    }
    let is_said = |raw: &RawValue| !matches!(raw.get(), "null" | "[]" | "{}");
    if let Some((name, _)) = fields
        .iter()
        .find(|(name, raw)| name.starts_with(TIERED) && is_said(raw))
    {
        return Err(Unusable::Tiered { field: name.clone() });
    }
    let is_known = |name: &str| PER_TOKEN.iter().chain(&EACH).any(|(theirs, _)| *theirs == name);
    let is_price = |name: &str| WORDS.iter().any(|word| name.contains(word)) && !is_known(name);
    let is_free = |text: &str| matches!(text, "null" | "0" | "0.0" | "[]" | "{}");
    let others = fields
        .iter()
        .filter(|(name, raw)| is_price(name) && !is_free(raw.get()));
    found.other = others.map(|(name, _)| name.clone()).collect();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_in_steps_are_told_and_never_taken_for_flat_ones() {
        let text = r#"{
            "steps": {"tiered_pricing": [{"input_cost_per_token": 5e-08, "range": [0, 256000]}], "mode": "chat"},
            "both": {"input_cost_per_token": 5e-08, "tiered_pricing": [{"input_cost_per_token": 5e-08}]},
            "flat": {"input_cost_per_token": 5e-08, "tiered_pricing": []},
            "spoken": {"output_cost_per_second": 1e-04},
            "uplifted": {"input_cost_per_token": 5e-08, "regional_processing_uplift_multiplier_eu": 1.1}
        }"#;
        let read = read(text).expect("a list");

        for name in ["steps", "both"] {
            let told = read[name].as_ref().expect_err(name).to_string();
            assert!(told.starts_with("tiered_pricing is in steps"), "{told}");
        }
        let usable = |name: &str| read[name].as_ref().expect("usable").clone();
        assert_eq!(usable("flat").pricing["prompt"], "0.050000000");
        assert!(usable("flat").other.is_empty());
        assert!(usable("spoken").pricing.is_empty());
        assert_eq!(usable("spoken").other, ["output_cost_per_second"]);
        assert_eq!(
            usable("uplifted").other,
            ["regional_processing_uplift_multiplier_eu"]
        );
    }

    #[test]
    fn entries_are_read_and_what_has_no_place_is_named() {
        let text = r#"{
            "sample_spec": {"input_cost_per_token": 0.0001, "max_tokens": "how many"},
            "gpt-4o-mini": {"input_cost_per_token": 1.5e-07, "output_cost_per_token": 6e-07,
                "cache_read_input_token_cost": 7.5e-08, "input_cost_per_token_batches": 7.5e-08,
                "litellm_provider": "openai", "mode": "chat", "supports_vision": true},
            "unpriced": {"mode": "chat"},
            "odd": {"input_cost_per_token": 1.23456789012e-07}
        }"#;
        let read = read(text).expect("a list");

        assert_eq!(read.keys().collect::<Vec<_>>(), ["gpt-4o-mini", "odd"]);
        let mini = read["gpt-4o-mini"].as_ref().expect("usable");
        assert_eq!(mini.pricing["prompt"], "0.150000000");
        assert_eq!(mini.pricing["completion"], "0.600000000");
        assert_eq!(mini.pricing["input_cache_reads"], "0.075000000");
        assert_eq!(mini.other, ["input_cost_per_token_batches"]);
        assert!(matches!(read["odd"], Err(Unusable::Inexact { .. })));
        assert!(super::read("[]").is_err());
    }
}
