//! What one method of one path does, as far as a client has to know: short to write, since what is common to a class of
//! handlers is said here.

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::manage::page::Page;

/// The schema of some type.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The schema of a type, where a function is wanted.
pub(crate) fn of_type<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// Who may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Everybody, with a credential or without.
    Everybody,
    /// Whoever has a good credential; he sees what is his.
    Callers,
    /// Administrators of a tenant, and operators.
    Administrators,
    /// Operators, and administrators of the operators' own tenant.
    Platform,
    /// Operators.
    Operators,
    /// Whoever has a credential of its own kind, which is no virtual key.
    Others,
}

/// A parameter of the query.
#[derive(Clone, Copy)]
pub(crate) struct Parameter {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it is for.
    pub(crate) about: &'static str,
    /// What it may be. An array is written as one value with commas.
    pub(crate) schema: SchemaOf,
    /// It has to be there.
    pub(crate) required: bool,
}

impl Parameter {
    /// One that may be left out.
    pub(crate) const fn new<T: JsonSchema>(name: &'static str, about: &'static str) -> Self {
        Self {
            name,
            about,
            schema: of_type::<T>,
            required: false,
        }
    }

    /// Of another form than its type has.
    pub(crate) const fn like(self, schema: SchemaOf) -> Self {
        Self { schema, ..self }
    }

    /// One that has to be there.
    pub(crate) const fn required(self) -> Self {
        Self {
            required: true,
            ..self
        }
    }
}

/// The headers that a call may bring beside those of every call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    /// None.
    None,
    /// `If-Match`: the revision that is to be replaced.
    IfMatch,
    /// `Idempotency-Key`: the call is made once.
    Once,
}

/// What one method of one path does.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    /// In one line.
    pub(crate) summary: &'static str,
    /// Who may call.
    pub(crate) audience: Audience,
    /// The parameters of its query.
    pub(crate) parameters: &'static [Parameter],
    /// It has those of a list as well.
    pub(crate) pages: bool,
    /// What stands in the headers.
    pub(crate) condition: Condition,
    /// What the body is, where one is read.
    pub(crate) body: Option<SchemaOf>,
    /// The status of its success.
    pub(crate) status: u16,
    /// What it answers then.
    pub(crate) answer: SchemaOf,
    /// The content types of that: the first as it is said, others as text.
    pub(crate) media_types: &'static [&'static str],
    /// The answer has an `ETag`.
    pub(crate) tagged: bool,
    /// Statuses of failures beside those of every operation of its audience.
    pub(crate) failures: &'static [u16],
    /// The same, of this operation alone.
    pub(crate) more_failures: &'static [u16],
}

impl Operation {
    /// Reads something that has no id: 200.
    pub(crate) const fn read<T: JsonSchema>(summary: &'static str) -> Self {
        Self {
            summary,
            audience: Audience::Administrators,
            parameters: &[],
            pages: false,
            condition: Condition::None,
            body: None,
            status: 200,
            answer: of_type::<T>,
            media_types: &["application/json"],
            tagged: false,
            failures: &[],
            more_failures: &[],
        }
    }

    /// Reads a page of `T`, with `limit` and `after`.
    pub(crate) const fn list<T: JsonSchema>(summary: &'static str) -> Self {
        Self {
            pages: true,
            ..Self::read::<Page<T>>(summary)
        }
    }

    /// Reads one of many: 404 where it is not there.
    pub(crate) const fn find<T: JsonSchema>(summary: &'static str) -> Self {
        Self {
            failures: &[404],
            ..Self::read::<T>(summary)
        }
    }

    /// Reads a record, with its `ETag`.
    pub(crate) const fn show<T: JsonSchema>(summary: &'static str) -> Self {
        Self {
            tagged: true,
            ..Self::find::<T>(summary)
        }
    }

    /// Makes a record: 201, once per `Idempotency-Key`.
    pub(crate) const fn create<B: JsonSchema, T: JsonSchema>(summary: &'static str) -> Self {
        Self {
            condition: Condition::Once,
            body: Some(of_type::<B>),
            status: 201,
            tagged: true,
            failures: &[408, 409, 413, 415, 422],
            ..Self::read::<T>(summary)
        }
    }

    /// Changes a record of which the body says what is different (`PATCH`), or all (`PUT`); honours `If-Match`.
    pub(crate) const fn change<B: JsonSchema, T: JsonSchema>(summary: &'static str) -> Self {
        Self {
            condition: Condition::IfMatch,
            body: Some(of_type::<B>),
            tagged: true,
            failures: &[404, 408, 409, 413, 415],
            ..Self::read::<T>(summary)
        }
    }

    /// Takes a record away, and shows what became of it.
    pub(crate) const fn remove<T: JsonSchema>(summary: &'static str) -> Self {
        Self {
            failures: &[404, 409],
            ..Self::read::<T>(summary)
        }
    }

    /// Has something done with what the body says.
    pub(crate) const fn ask<B: JsonSchema, T: JsonSchema>(summary: &'static str) -> Self {
        Self {
            body: Some(of_type::<B>),
            failures: &[408, 413, 415],
            ..Self::read::<T>(summary)
        }
    }

    /// Everybody may call.
    pub(crate) const fn of_everybody(self) -> Self {
        self.of(Audience::Everybody)
    }

    /// Whoever has a good credential may call.
    pub(crate) const fn of_callers(self) -> Self {
        self.of(Audience::Callers)
    }

    /// Administrators may call.
    pub(crate) const fn of_administrators(self) -> Self {
        self.of(Audience::Administrators)
    }

    /// Operators may call.
    pub(crate) const fn of_operators(self) -> Self {
        self.of(Audience::Operators)
    }

    /// Others than administrators may call.
    pub(crate) const fn of(self, audience: Audience) -> Self {
        Self { audience, ..self }
    }

    /// With parameters in the query.
    pub(crate) const fn taking(self, parameters: &'static [Parameter]) -> Self {
        Self { parameters, ..self }
    }

    /// With an answer of other content types.
    pub(crate) const fn writing(self, media_types: &'static [&'static str]) -> Self {
        Self { media_types, ..self }
    }

    /// With another status of its success.
    pub(crate) const fn answering(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// With `If-Match`, `Idempotency-Key` or neither, where that differs from its class.
    pub(crate) const fn under(self, condition: Condition) -> Self {
        Self { condition, ..self }
    }

    /// With statuses that its class does not have.
    pub(crate) const fn failing(self, more_failures: &'static [u16]) -> Self {
        Self {
            more_failures,
            ..self
        }
    }
}
