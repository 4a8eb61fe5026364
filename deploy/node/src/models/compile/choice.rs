//! What a leg says in words: its profile, its processor, how it is spoken to, and OpenRouter's preferences. A word that
//! is none is refused with those that are.

use dialects::profile::{self, Profile};
use schemas::catalog::{ProviderKind, ResponsesUse};
use serde_json::{Map, Value};

use super::Context;
use crate::models::endpoint_id::host_and_port;
use crate::models::file::Leg;
use crate::yaml::Problem;
use dialects::provider::{self, Kind};

/// Orders that OpenRouter knows.
const SORTS: [&str; 3] = ["price", "throughput", "latency"];

impl Context<'_> {
    /// What the server tolerates: as the leg or its model says, else as its kind says, else as its host is known.
    pub(super) fn profile(
        &self,
        leg: &Leg,
        (kind, address): (&Kind<'_>, &str),
        key: &str,
    ) -> Result<Option<&'static Profile>, Problem> {
        let told = leg
            .provider_profile
            .as_ref()
            .or(self.entry.provider_profile.as_ref());
        if let Some(word) = told {
            let known = profile::named(word).ok_or_else(|| {
                let names: Vec<&str> = profile::names().collect();
                self.problem(
                    &self.at(key, &["provider_profile", "profile"]),
                    format!("\"{word}\" is not a profile"),
                    &format!("use one of {}", names.join(", ")),
                )
            })?;
            if leg.provider_profile.is_some() && !kind.is_openai() {
                let message = format!(
                    "profiles are of servers of the OpenAI API, and this leg is of kind {}",
                    kind.word
                );
                return Err(self.problem(
                    &self.at(key, &["provider_profile", "profile"]),
                    message,
                    "remove it",
                ));
            }
            return Ok(Some(known).filter(|_| kind.is_openai()));
        }
        if !kind.is_openai() {
            return Ok(None);
        }
        let of_host = || host_and_port(address).and_then(|(host, _)| profile::of_host(&host));
        Ok(kind.profile.or_else(of_host))
    }

    /// What turns the model's text into calls or thoughts. Where nobody says, families that are known to write so have
    /// theirs.
    pub(super) fn processor(&self, leg: &Leg, kind: &Kind<'_>, key: &str) -> Result<&'static str, Problem> {
        let entry = self.entry;
        let Some(word) = leg.processor.as_deref().or(entry.processor.as_deref()) else {
            let chats = kind.is_openai() && !self.embeds();
            let id = entry.id.to_ascii_lowercase();
            return Ok(match () {
                () if !chats => "",
                () if id.contains("qwen") && id.contains("coder") => "qwen",
                () if id.contains("minimax") => "think_block",
                () => "",
            });
        };
        Ok(match word {
            "default" => "",
            "glm" => "glm",
            "qwen_coder" | "qwen" => "qwen",
            "think_block" => "think_block",
            _ => {
                return Err(self.problem(
                    &self.at(key, &["processor"]),
                    format!("\"{word}\" is not a processor"),
                    "use default, glm, qwen_coder or think_block",
                ));
            }
        })
    }

    /// Whether the server is spoken to in Responses.
    pub(super) fn responses(&self, leg: &Leg, kind: &Kind<'_>, key: &str) -> Result<ResponsesUse, Problem> {
        let at = || self.at(key, &["responses"]);
        let used = match leg.responses.as_deref().or(self.entry.responses.as_deref()) {
            None => return Ok(ResponsesUse::Never),
            Some("translated") => ResponsesUse::Never,
            Some("native") => ResponsesUse::Native,
            Some("only") => ResponsesUse::Only,
            Some(word) => {
                return Err(self.problem(
                    &at(),
                    format!("\"{word}\" does not say how Responses is spoken"),
                    "use translated, native (for callers of Responses) or only (for all callers)",
                ));
            }
        };
        if kind.is_openai() {
            return Ok(used);
        }
        // What the model says holds for those of its legs that can.
        if leg.responses.is_none() || used == ResponsesUse::Never {
            return Ok(ResponsesUse::Never);
        }
        let message = format!("servers of kind {} do not speak Responses", kind.word);
        Err(self.problem(&at(), message, "remove it"))
    }

    /// Members that the endpoint adds to every body, without braces.
    pub(super) fn extra_body(&self, leg: &Leg, kind: &Kind<'_>, key: &str) -> Result<String, Problem> {
        let own = leg.extra_body.as_ref().unwrap_or(&self.entry.extra_body);
        let mut members = if kind.api == ProviderKind::Openrouter {
            self.preferences(leg, kind, key)?
        } else {
            Map::new()
        };
        for (name, value) in own {
            match (members.get_mut(name), value) {
                // Preferences of both places hold together.
                (Some(Value::Object(preset)), Value::Object(more)) => {
                    preset.extend(more.iter().map(|(name, value)| (name.clone(), value.clone())));
                }
                _ => {
                    members.insert(name.clone(), value.clone());
                }
            }
        }
        if members.is_empty() {
            return Ok(String::new());
        }
        let text = Value::Object(members).to_string();
        Ok(text[1..text.len() - 1].to_owned())
    }

    fn preferences(&self, leg: &Leg, kind: &Kind<'_>, key: &str) -> Result<Map<String, Value>, Problem> {
        let entry = self.entry;
        let sort = leg
            .openrouter_sort
            .as_deref()
            .or(entry.openrouter_sort.as_deref());
        if let Some(word) = sort.filter(|word| !SORTS.contains(word)) {
            return Err(self.problem(
                &self.at(key, &["openrouter_sort"]),
                format!("\"{word}\" is not an order of OpenRouter's"),
                "use price, throughput or latency",
            ));
        }
        let told = leg
            .openrouter_pinned_provider
            .as_deref()
            .or(entry.openrouter_pinned_provider.as_deref());
        if let Some(word) = told.filter(|word| !provider::is_slug(word)) {
            return Err(self.problem(
                &self.at(key, &["openrouter_pinned_provider"]),
                format!("\"{word}\" is not a provider's name at OpenRouter"),
                "write it as OpenRouter does, such as deepinfra/fp8",
            ));
        }
        Ok(provider::openrouter_body(
            sort,
            provider::pinned(kind.word).or(told),
        ))
    }
}
