//! A request while it is written: members in a fixed order, so that caches of prompts hold, and what was left out.

use std::borrow::Cow;

use serde::Serialize;

use crate::superset::request::{Encoded, Target, Unmappable};
use crate::superset::tool::Names;

/// A JSON object as it is written, and what is left out of it.
pub(super) struct Draft<'t> {
    body: Vec<u8>,
    target: &'t Target<'t>,
    dropped: Vec<Cow<'static, str>>,
}

impl<'t> Draft<'t> {
    pub(super) fn new(target: &'t Target<'t>) -> Self {
        Self {
            body: Vec::with_capacity(1024),
            target,
            dropped: Vec::new(),
        }
    }

    /// The upstream's name of the model.
    pub(super) const fn model(&self) -> &'t str {
        self.target.model
    }

    /// The word of effort that the model takes for `word`.
    pub(super) fn effort(&self, word: &'static str) -> &'static str {
        self.target.effort(word)
    }

    /// Reports something that was left out, once.
    pub(super) fn drop(&mut self, name: impl Into<Cow<'static, str>>) {
        let name = name.into();
        if !self.dropped.contains(&name) {
            self.dropped.push(name);
        }
    }

    /// Leaves something out where the route allows it, else refuses it.
    pub(super) fn refuse(&mut self, param: &str, problem: &'static str) -> Result<(), Unmappable> {
        if self.target.drop_params {
            self.drop(param.to_owned());
            return Ok(());
        }
        Err(unmappable(param, problem))
    }

    /// Writes a member.
    pub(super) fn put<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        self.body.push(if self.body.is_empty() { b'{' } else { b',' });
        json(&mut self.body, name);
        self.body.push(b':');
        json(&mut self.body, value);
    }

    /// The whole request.
    pub(super) fn finish(mut self, names: Names) -> Encoded {
        if self.body.is_empty() {
            self.body.push(b'{');
        }
        self.body.push(b'}');
        Encoded {
            body: self.body.into(),
            headers: Vec::new(),
            dropped: self.dropped,
            names,
        }
    }
}

/// What cannot be said at all, whatever the route allows.
pub(super) fn unmappable(param: &str, problem: &'static str) -> Unmappable {
    Unmappable {
        param: param.to_owned().into(),
        problem: problem.into(),
    }
}

/// Appends a value. Text, numbers and raw JSON always serialize.
fn json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let written = serde_json::to_writer(out, value);
    debug_assert!(written.is_ok(), "a value of known shape always serializes");
}
