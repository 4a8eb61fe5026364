//! What is sent to one candidate: the caller's own body where the candidate speaks his dialect, else one that is
//! written for it. Pure, and made before anything is claimed: what an endpoint cannot be told costs it nothing.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use dialects::chat::mend::{Needs, mend};
use dialects::dialect::Dialect;
use dialects::member::{self, renamed};
use dialects::parameter::told::{dropped, told};
use dialects::passage::history::{may_carry_proofs, without_our_proofs, without_thoughts};
use dialects::passage::request::{Suspicion, choices_asked, may_carry_signatures, suspicion};
use dialects::processor::Kind;
use dialects::profile::{self, Profile};
use dialects::responses::mend::arguments_mended;
use dialects::responses::stateless::stateless;
use dialects::splice::Spliced;
use dialects::superset::event::Reply;
use dialects::superset::request::{Conversation, Part, Refusal, THOUGHTS, Target, Unmappable};
use dialects::translate::{Way, decode_request, encode_request};
use http::{HeaderName, HeaderValue};
use schemas::catalog::{Endpoint, ProviderKind};
use schemas::command::Offer;
use schemas::event::request::Surface;

use super::fitted::{Fitted, fit};
use crate::fault::Fault;
use crate::plan::Candidate;
use crate::provider::{self, header};

/// Most tokens of an answer where an upstream demands a figure and neither the caller nor the catalogue gives one.
const ANSWER_TOKENS: u64 = 4_096;
/// The member by which some servers schedule.
const PRIORITY: &str = "priority";
/// Longest list of dropped parameters that a caller is told, in bytes.
const DROPPED_BYTES_MAX: usize = 1_024;

/// What is sent to one candidate, and how its answer is read.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// What it speaks.
    pub(crate) dialect: Dialect,
    /// The body.
    pub(crate) body: Spliced,
    /// Headers of this request alone.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// How its answer becomes one for the caller; `None` where it passes.
    pub(crate) way: Option<Box<Way>>,
    /// Names of parameters that were dropped, as a header's value.
    pub(crate) dropped: Option<String>,
    /// The caller's own body without what was dropped of it; `None` where that is nothing.
    pub(crate) fitted: Option<Bytes>,
}

impl Prepared {
    /// What passes as it is.
    pub(super) fn passing(body: &Bytes) -> Self {
        Self {
            dialect: Dialect::Chat,
            body: body.clone().into(),
            headers: Vec::new(),
            way: None,
            dropped: None,
            fitted: None,
        }
    }

    /// Says how urgent it is to an upstream that schedules by that; what its caller said of it is dropped and told.
    pub(super) fn prioritize(&mut self, priority: u8) {
        if !matches!(self.dialect, Dialect::Chat | Dialect::Completions) {
            return;
        }
        let (rest, gone) = provider::without(self.body.joined(), &[PRIORITY]);
        self.body = member::with(rest, &format!("\"{PRIORITY}\":{priority},")).into();
        if !gone.is_empty() {
            let told = self.dropped.as_deref().into_iter();
            self.dropped = Some(told.chain(gone).collect::<Vec<_>>().join(", "));
        }
    }
}

/// A request as its candidates need it; what is costly is made once, and only when it is asked for.
#[derive(Debug, Default)]
pub(crate) struct Preparation {
    suspicion: Option<Suspicion>,
    conversation: Option<Result<Box<Conversation>, Refusal>>,
    /// Thoughts are taken out of the conversation.
    is_thoughtless: bool,
    /// There were some.
    lost_thoughts: bool,
    /// Thoughts are taken out of what passes.
    passes_thoughtless: bool,
    /// The same of the body that was fitted last.
    fitted: Option<(Bytes, Box<Preparation>)>,
}

/// How a request goes to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Passage {
    caller: Dialect,
    upstream: Dialect,
}

impl Passage {
    fn of(endpoint: &Endpoint, surface: Surface) -> Self {
        Self {
            caller: Dialect::of_surface(surface),
            upstream: provider::dialect(endpoint, surface),
        }
    }

    /// The dialects are the same, and nothing in the answer has to be read another way.
    fn is_free(self, endpoint: &Endpoint) -> bool {
        let changed = Kind::named(&endpoint.processor).is_some();
        self.caller == self.upstream && !(self.caller == Dialect::Chat && changed)
    }
}

impl Preparation {
    /// What `candidate` is sent. `answer_tokens` tells the most that the model answers, 0 where that is not known.
    pub(crate) fn prepare(
        &mut self,
        candidate: &Candidate,
        offer: &Offer,
        body: &Bytes,
        answer_tokens: &dyn Fn() -> u64,
    ) -> Result<Prepared, Fault> {
        let drops = candidate.endpoint.drop_params;
        let mut tells_of_tools = || self.suspicion.get_or_insert_with(|| suspicion(body)).tools;
        match fit(&candidate.takes, drops, (offer, body), &mut tells_of_tools)? {
            None => self.written(candidate, offer, body, answer_tokens),
            Some(fitted) => self.fitted(candidate, offer, fitted, answer_tokens),
        }
    }

    /// The same of a body without what the candidate does not take.
    fn fitted(
        &mut self,
        candidate: &Candidate,
        offer: &Offer,
        fitted: Fitted,
        answer_tokens: &dyn Fn() -> u64,
    ) -> Result<Prepared, Fault> {
        let known = self.fitted.take().filter(|(body, _)| *body == fitted.body);
        let mut own = known.map_or_else(Box::default, |(_, own)| own);
        own.passes_thoughtless = self.passes_thoughtless;
        let offer = Offer {
            splice: fitted.splice,
            ..offer.clone()
        };
        let prepared = own.written(candidate, &offer, &fitted.body, answer_tokens);
        self.fitted = Some((fitted.body.clone(), own));
        let prepared = prepared?;
        let told = prepared.dropped.iter().map(String::as_str);
        let dropped: Vec<&str> = fitted.dropped.into_iter().chain(told).collect();
        Ok(Prepared {
            dropped: Some(dropped.join(", ")),
            fitted: Some(fitted.body),
            ..prepared
        })
    }

    /// What `candidate` is sent of a body as it is.
    fn written(
        &mut self,
        candidate: &Candidate,
        offer: &Offer,
        body: &Bytes,
        answer_tokens: &dyn Fn() -> u64,
    ) -> Result<Prepared, Fault> {
        let endpoint = candidate.endpoint.as_ref();
        let chosen = provider::choices(endpoint, body);
        if let Some(param) = chosen.first().filter(|_| !endpoint.drop_params) {
            return Err(unmappable(
                param,
                "who serves behind its provider is not for callers to choose",
            ));
        }
        let mut prepared = self.carried(candidate, offer, body, answer_tokens)?;
        if !chosen.is_empty() {
            let told = prepared.dropped.as_deref();
            prepared.dropped = Some(chosen.into_iter().chain(told).collect::<Vec<_>>().join(", "));
        }
        Ok(prepared)
    }

    /// What `candidate` is sent: the body itself where it can pass, else what it becomes in another dialect.
    fn carried(
        &mut self,
        candidate: &Candidate,
        offer: &Offer,
        body: &Bytes,
        answer_tokens: &dyn Fn() -> u64,
    ) -> Result<Prepared, Fault> {
        let endpoint = candidate.endpoint.as_ref();
        let passage = Passage::of(endpoint, offer.surface);
        if passage.is_free(endpoint) && !self.is_signed(passage.caller, body) {
            let lacks_tier = passage.caller == Dialect::Chat && !endpoint.drop_params;
            if lacks_tier && profile(endpoint).lacks_tier_of(body) {
                return Err(unmappable("service_tier", "its provider has no such parameter"));
            }
            return Ok(self.passed(candidate, offer, body, passage.upstream));
        }
        if passage.caller == Dialect::Embeddings {
            return Err(unmappable(
                "model",
                "it is served by no provider that makes embeddings",
            ));
        }
        if passage.caller == Dialect::Chat && choices_asked(Dialect::Chat, body) > 1 {
            return Err(unmappable("n", "only one choice can be made there"));
        }
        self.translated(candidate, offer, body, (passage, answer_tokens()))
    }

    /// Ids of calls carry what only Gemini reads, and what makes them too long for others: they are taken apart. Where
    /// nothing is said of tools there are no calls.
    fn is_signed(&mut self, caller: Dialect, body: &[u8]) -> bool {
        caller == Dialect::Chat
            && self.suspicion.get_or_insert_with(|| suspicion(body)).tools
            && may_carry_signatures(body)
            && choices_asked(Dialect::Chat, body) == 1
    }

    fn passed(&mut self, candidate: &Candidate, offer: &Offer, body: &Bytes, dialect: Dialect) -> Prepared {
        let endpoint = candidate.endpoint.as_ref();
        let mut sent = provider::body(candidate, dialect, body, &offer.splice);
        let mut dropped = Vec::new();
        if dialect == Dialect::Chat && endpoint.kind != ProviderKind::Echo {
            let profile = profile(endpoint);
            let suspicion = *self.suspicion.get_or_insert_with(|| suspicion(body));
            let needs = Needs::of(profile, suspicion, body);
            if !needs.is_none() {
                let whole = sent.joined();
                sent = match mend(&whole, needs) {
                    Some(mended) => {
                        dropped.extend(mended.dropped);
                        mended.body.into()
                    }
                    None => whole.into(),
                };
            }
            if !profile.drops.is_empty() {
                let (left, gone) = provider::without(sent.joined(), profile.drops);
                dropped.extend(gone.into_iter().map(Cow::Borrowed));
                sent = left.into();
            }
            if !profile.renames.is_empty() {
                sent = renamed(sent.joined(), profile.renames).into();
            }
        }
        sent = self.freed(dialect, sent, &mut dropped);
        if dialect == Dialect::Responses {
            let whole = sent.joined();
            let (kept_by_nobody, gone) = stateless(&arguments_mended(&whole).unwrap_or(whole));
            dropped.extend(gone.map(Cow::Borrowed));
            sent = kept_by_nobody.into();
        }
        let extra = header::of_request(endpoint, dialect, Some(&offer.told), &[]);
        dropped.extend(extra.dropped);
        Prepared {
            dialect,
            body: sent,
            headers: extra.headers,
            way: None,
            dropped: header_value(&dropped),
            fitted: None,
        }
    }

    /// What passes without the thoughts that its upstream would not accept; what they are goes to `dropped`.
    fn freed(&self, dialect: Dialect, sent: Spliced, dropped: &mut Vec<Cow<'static, str>>) -> Spliced {
        let is_thoughtless = self.passes_thoughtless && dialect == Dialect::Messages;
        // The caller's body is one of the pieces, and what is put between them is ours.
        let is_suspect = matches!(dialect, Dialect::Messages | Dialect::Responses)
            && sent.pieces().iter().any(|piece| may_carry_proofs(piece));
        if !is_thoughtless && !is_suspect {
            return sent;
        }
        let whole = sent.joined();
        let freed = if is_thoughtless {
            without_thoughts(&whole)
        } else {
            without_our_proofs(dialect, &whole)
        };
        let Some(freed) = freed else {
            return whole.into();
        };
        dropped.extend(freed.dropped.into_iter().map(Cow::Borrowed));
        freed.body.into()
    }

    fn translated(
        &mut self,
        candidate: &Candidate,
        offer: &Offer,
        body: &Bytes,
        (passage, answer_tokens): (Passage, u64),
    ) -> Result<Prepared, Fault> {
        let endpoint = candidate.endpoint.as_ref();
        let decoded = self
            .conversation
            .get_or_insert_with(|| decode_request(passage.caller, body).map(Box::new));
        let conversation = decoded.as_ref().map_err(|refusal| Fault::from(refusal.clone()))?;
        let target = Target {
            model: &candidate.upstream_model,
            profile: profile(endpoint),
            efforts: &candidate.takes.efforts,
            max_tokens_default: if answer_tokens == 0 {
                ANSWER_TOKENS
            } else {
                answer_tokens
            },
            max_tokens_limit: (answer_tokens > 0).then_some(answer_tokens),
            drop_params: endpoint.drop_params,
        };
        let encoded = encode_request(passage.upstream, conversation, &target)
            .map_err(|unmappable| told(offer.surface, body, unmappable))?;
        let processor = Kind::named(&endpoint.processor);
        let extra = header::of_request(endpoint, passage.upstream, None, &encoded.headers);
        let mut left_out = encoded.dropped;
        if self.lost_thoughts {
            left_out.push(Cow::Borrowed(THOUGHTS));
        }
        let mut dropped = dropped(offer.surface, body, left_out);
        dropped.extend(extra.dropped);
        if offer.told.anthropic_beta.is_some() {
            dropped.push(Cow::Borrowed("anthropic-beta"));
        }
        let way = Way {
            upstream: passage.upstream,
            caller: passage.caller,
            processor,
            tools: processor.map_or_else(Arc::default, |_| encoded.names.told(&conversation.tools).into()),
            names: encoded.names,
            reply: Reply {
                id: offer.request_id.0.as_simple().to_string(),
                created: offer.started_at.millis().div_euclid(1_000),
                model: offer.public_model.as_ref().to_owned(),
                include_usage: conversation.include_usage,
                hides_thinking: offer.told.hides_thinking || conversation.reasoning.shown == Some(false),
                prompt_tokens: offer.requirements.prompt_tokens,
                request: body.clone(),
            },
        };
        Ok(Prepared {
            dialect: passage.upstream,
            body: provider::complete(candidate, passage.upstream, Spliced::from(encoded.body)),
            headers: extra.headers,
            way: Some(Box::new(way)),
            dropped: header_value(&dropped),
            fitted: None,
        })
    }

    /// Takes the thoughts out of what was translated, because an upstream does not accept their proofs; false when
    /// there are none, or they were taken out before.
    pub(super) fn forget_thoughts(&mut self) -> bool {
        let fitted = self.fitted.as_mut();
        if fitted.is_some_and(|(_, own)| own.forget_thoughts()) {
            return true;
        }
        let Some(Ok(conversation)) = &mut self.conversation else {
            return false;
        };
        if std::mem::replace(&mut self.is_thoughtless, true) {
            return false;
        }
        let mut found = false;
        for turn in &mut conversation.turns {
            let parts = turn.parts.len();
            turn.parts.retain(|part| !matches!(part, Part::Thinking { .. }));
            found |= turn.parts.len() < parts;
        }
        conversation.turns.retain(|turn| !turn.parts.is_empty());
        self.lost_thoughts = found;
        found
    }

    /// The same of what passed as `prepared`.
    pub(super) fn forget_passing_thoughts(&mut self, prepared: &Prepared) -> bool {
        !std::mem::replace(&mut self.passes_thoughtless, true)
            && without_thoughts(&prepared.body.joined()).is_some()
    }
}

/// What the endpoint's server tolerates.
fn profile(endpoint: &Endpoint) -> &'static Profile {
    let name = match endpoint.kind {
        ProviderKind::Openrouter if endpoint.profile.is_empty() => "openrouter",
        _ => endpoint.profile.as_str(),
    };
    profile::named(name).unwrap_or(&profile::DEFAULT)
}

fn unmappable(param: &'static str, problem: &'static str) -> Fault {
    Unmappable {
        param: param.into(),
        problem: problem.into(),
    }
    .into()
}

/// Names for a header: each once, those that fit; `None` for none.
fn header_value(names: &[Cow<'static, str>]) -> Option<String> {
    let plain =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
    let mut told: Vec<&str> = Vec::new();
    let mut bytes = 0;
    for name in names.iter().map(AsRef::as_ref).filter(|name| plain(name)) {
        if !told.contains(&name) && bytes + name.len() <= DROPPED_BYTES_MAX {
            bytes += name.len() + 2;
            told.push(name);
        }
    }
    (!told.is_empty()).then(|| told.join(", "))
}

#[cfg(test)]
mod tests;
