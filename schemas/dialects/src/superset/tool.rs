//! What a model may call, and the names by which both sides know it.

use serde_json::value::RawValue;

/// A tool that a model may call.
#[derive(Debug, Clone)]
pub struct Tool {
    /// Its name, as the caller knows it.
    pub name: String,
    /// The group it belongs to, where there are groups.
    pub namespace: Option<String>,
    /// For the model to read.
    pub description: Option<String>,
    /// What it takes.
    pub input: Input,
    /// Calls follow the schema to the letter.
    pub strict: Option<bool>,
    /// A mark that a cache may keep everything up to here: a hint, as Anthropic writes it.
    pub cache: Option<Box<RawValue>>,
}

/// What a tool takes.
#[derive(Debug, Clone)]
pub enum Input {
    /// An object of this JSON schema, key order kept; `None` for one without members.
    Schema(Option<Box<RawValue>>),
    /// Free text; a grammar for it, where there is one, as the caller wrote it.
    Text(Option<Box<RawValue>>),
}

/// Whether tools are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChoice {
    /// As the model likes.
    Auto,
    /// At least one.
    Required,
    /// None.
    Never,
    /// This one.
    Named(String),
    /// Only some of them, as the model likes or at least one.
    Allowed {
        /// Their names.
        names: Vec<String>,
        /// At least one.
        required: bool,
    },
}

impl ToolChoice {
    /// True when a call is demanded and none of `tools` may be called.
    pub fn demands_the_impossible(&self, tools: &[Tool]) -> bool {
        match self {
            Self::Auto | Self::Never | Self::Allowed { required: false, .. } => false,
            Self::Required => tools.is_empty(),
            Self::Named(name) => tools.iter().all(|tool| tool.name != *name),
            Self::Allowed { names, .. } => tools.iter().all(|tool| !names.contains(&tool.name)),
        }
    }
}

/// A tool as the caller knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Known {
    /// Its name.
    pub name: String,
    /// The group it belongs to.
    pub namespace: Option<String>,
    /// It takes free text, which upstreams without such tools are given as `{"input": text}`.
    pub custom: bool,
}

/// Tools that an upstream knows by other names than the caller, or in another form.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names(Vec<(String, Known)>);

impl Names {
    /// Notes that the upstream knows a tool as `sent`.
    pub fn note(&mut self, sent: String, known: Known) {
        self.0.push((sent, known));
    }

    /// The tool that the upstream knows as `sent`; `None` when it bears the same name on both sides.
    pub fn known(&self, sent: &str) -> Option<&Known> {
        self.0
            .iter()
            .find(|(name, _)| name == sent)
            .map(|(_, known)| known)
    }

    /// Tools as the upstream knows them.
    pub fn told(&self, tools: &[Tool]) -> Vec<Tool> {
        let sent = |tool: &Tool| {
            let is_it = |known: &Known| known.name == tool.name && known.namespace == tool.namespace;
            let found = self.0.iter().find(|(_, known)| is_it(known));
            found.map_or_else(|| tool.name.clone(), |(sent, _)| sent.clone())
        };
        let told = |tool: &Tool| Tool {
            name: sent(tool),
            ..tool.clone()
        };
        tools.iter().map(told).collect()
    }

    /// True when every tool bears the same name on both sides.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_told_by_the_names_that_the_upstream_knows() {
        let tool = |name: &str, namespace: Option<&str>| Tool {
            name: name.to_owned(),
            namespace: namespace.map(str::to_owned),
            description: None,
            input: Input::Schema(None),
            strict: None,
            cache: None,
        };
        let mut names = Names::default();
        names.note(
            "files__read".to_owned(),
            Known {
                name: "read".to_owned(),
                namespace: Some("files".to_owned()),
                custom: false,
            },
        );

        let told = names.told(&[tool("read", Some("files")), tool("read", None)]);

        let told: Vec<&str> = told.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(told, ["files__read", "read"]);
    }
}
