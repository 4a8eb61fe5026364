//! Calls that leave no room to think, pure: clients ask for a title or a yes in a few dozen tokens, and a model that
//! thinks first spends them before it says a word. Where an operator names a small model for such calls, that one
//! answers them, with room enough. What is asked with tools, with a form, or with texts that end the answer is short on
//! purpose, and stays where it was sent.

use std::sync::Arc;

use bytes::Bytes;
use dialects::skim::Skim;
use schemas::catalog::{Catalog, Model};
use schemas::event::request::Surface;
use schemas::id::ModelName;
use schemas::parameter::Parameters;

use crate::caller::Caller;
use crate::gate;
use crate::responses::object::Object;

/// What becomes of such calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmallCalls {
    /// The model that answers them.
    pub model: ModelName,
    /// A call that asks for no more tokens than this is one.
    pub tokens_max: u64,
    /// Least tokens that it may use there.
    pub tokens_min: u64,
}

/// The model that answers a call instead of `model`; `None` when that one does.
pub(crate) fn instead<'c>(
    small: &SmallCalls,
    catalog: &'c Catalog,
    (caller, surface): (&Caller, Surface),
    (model, skim): (&Model, &Skim),
) -> Option<&'c Arc<Model>> {
    let purposeful = Parameters::TOOLS | Parameters::FORMAT | Parameters::STOP;
    let is_small = surface == Surface::Messages
        && skim.max_tokens.is_some_and(|tokens| tokens <= small.tokens_max)
        && skim.parameters.and(purposeful).is_empty()
        && model.routes.iter().any(|route| route.takes.reasons)
        && model.id != small.model;
    if !is_small {
        return None;
    }
    let named = Skim {
        model: small.model.as_str().to_owned(),
        ..skim.clone()
    };
    gate::admit(catalog, caller, (&named, &[]), surface).ok()
}

/// The body of a call with room enough.
pub(crate) fn roomier(small: &SmallCalls, body: &Bytes) -> Option<Bytes> {
    let tokens = small.tokens_min.to_string();
    let changed = Object::read(body)?.with(&[("max_tokens", &tokens)]);
    Some(changed.into())
}

#[cfg(test)]
mod tests {
    use dialects::skim::{Limits, skim};
    use schemas::catalog::{Role, Route, model_key};
    use schemas::id::{EndpointId, PoolName};
    use schemas::parameter::Takes;

    use super::*;
    use crate::gate::tests::{caller, model};

    fn small() -> SmallCalls {
        SmallCalls {
            model: ModelName::from("little"),
            tokens_max: 64,
            tokens_min: 512,
        }
    }

    fn catalog(reasons: bool, role: Role) -> Catalog {
        let route = Route {
            endpoint_id: EndpointId::from("m:o1"),
            upstream_model: "up".into(),
            priority: 0,
            weight_micro: 1_000_000,
            pool: PoolName::from("default"),
            context_length: 8_192,
            input_modalities: schemas::catalog::modality::Modalities::TEXT,
            takes: Arc::new(Takes {
                reasons,
                ..Takes::default()
            }),
            price: None,
            origin: schemas::catalog::Origin::File,
            rates: None,
        };
        let little = model(|model| {
            model.id = small().model;
            model.aliases.clear();
            model.required_role = role;
        });
        let large = model(|model| {
            model.supports_tools = true;
            model.routes = vec![route];
        });
        let mut catalog = Catalog::default();
        for model in [large, little] {
            let value = serde_json::to_vec(&model).expect("serialize");
            catalog
                .apply(1, &model_key(&model.id), Some(&value))
                .expect("apply");
        }
        catalog
    }

    fn answered_by(catalog: &Catalog, surface: Surface, members: &str) -> Option<String> {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}],{members}}}"#);
        let skim = skim(surface, body.as_bytes(), &Limits::default()).expect("a body");
        let asked = catalog.model("m").expect("there");
        let other = instead(&small(), catalog, (&caller(|_| {}), surface), (asked, &skim));
        other.map(|model| model.id.as_str().to_owned())
    }

    #[test]
    fn a_call_without_room_to_think_goes_to_the_small_model() {
        let thinking = catalog(true, Role::Free);
        let plain = catalog(false, Role::Free);
        let hidden = catalog(true, Role::Pro);
        let messages = |catalog, members| answered_by(catalog, Surface::Messages, members);

        assert_eq!(
            messages(&thinking, r#""max_tokens":64"#).as_deref(),
            Some("little")
        );
        assert_eq!(messages(&thinking, r#""max_tokens":65"#), None);
        assert_eq!(messages(&plain, r#""max_tokens":64"#), None);
        assert_eq!(
            messages(&hidden, r#""max_tokens":64"#),
            None,
            "it is not there for him"
        );
        assert_eq!(answered_by(&thinking, Surface::Chat, r#""max_tokens":64"#), None);
    }

    #[test]
    fn what_is_short_on_purpose_stays_where_it_was_sent() {
        let thinking = catalog(true, Role::Free);

        for members in [
            r#""max_tokens":64,"stop_sequences":["</block>"]"#,
            r#""max_tokens":64,"tools":[{"name":"look"}]"#,
            r#""max_tokens":64,"output_config":{"format":{"type":"json_schema"}}"#,
        ] {
            assert_eq!(
                answered_by(&thinking, Surface::Messages, members),
                None,
                "{members}"
            );
        }
    }

    #[test]
    fn it_gets_room_enough_and_all_else_as_it_was_written() {
        let body = Bytes::from_static(br#"{"model":"m", "max_tokens":32,"temperature":0.50}"#);

        let roomier = roomier(&small(), &body).expect("an object");

        assert_eq!(roomier, r#"{"model":"m","max_tokens":512,"temperature":0.50}"#);
    }
}
