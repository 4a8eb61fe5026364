//! Configuration files: parsed once into a tree that knows its lines, interpolated on parsed scalars
//! (`${VAR}`, `${VAR:-default}`, embedded anywhere), then read into types that refuse unknown keys.
//! Every error names the file, the key's path, the line and what to do.

use std::fmt;
use std::ops::Range;

use schemas::named::Named;
use serde::Deserialize;
use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::Spanned;

use crate::environment::Environment;

/// Largest configuration file, in bytes.
pub const FILE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Something is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {}{message}; {remedy}", line_suffix(*line), path_prefix(path))]
pub struct Problem {
    /// The file, as the operator named it, or `environment`.
    pub file: String,
    /// 1-based line, 0 when there is none to tell.
    pub line: u64,
    /// The key's path, such as `models[0].route[1].weight`.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

fn line_suffix(line: u64) -> String {
    if line == 0 {
        String::new()
    } else {
        format!(":{line}")
    }
}

fn path_prefix(path: &str) -> String {
    if path.is_empty() {
        String::new()
    } else {
        format!("{path}: ")
    }
}

/// A parsed file.
#[derive(Debug, Clone)]
pub struct Document {
    file: String,
    root: Located,
}

#[derive(Debug, Clone)]
struct Located {
    line: u64,
    /// Where it stands in the file, in bytes.
    span: Range<usize>,
    node: Node,
}

#[derive(Debug, Clone)]
enum Node {
    Scalar(Value),
    Sequence(Vec<Located>),
    Mapping(Vec<(String, u64, Located)>),
}

impl Document {
    /// Parses `text` and expands its variables. A variable without default that is not set expands to nothing.
    pub fn parse(file: &str, text: &str, environment: &Environment) -> Result<Self, Problem> {
        let mut document = Self::verbatim(file, text)?;
        expand(&mut document.root, environment);
        Ok(document)
    }

    /// Parses `text`, in which nothing is replaced.
    pub fn verbatim(file: &str, text: &str) -> Result<Self, Problem> {
        let problem = |line, message: String, remedy: &str| Problem {
            file: file.to_owned(),
            line,
            path: String::new(),
            message,
            remedy: remedy.to_owned(),
        };
        if text.len() > FILE_BYTES_MAX {
            return Err(problem(0, "the file is too large".into(), "split it"));
        }
        if text.trim().is_empty() {
            let root = Located {
                line: 1,
                span: 0..0,
                node: Node::Mapping(Vec::new()),
            };
            return Ok(Self {
                file: file.to_owned(),
                root,
            });
        }
        let root: Spanned<Node> = serde_saphyr::from_str(text).map_err(|error| {
            let line = error.location().map_or(0, |location| location.line());
            let message = error.to_string();
            problem(
                line,
                syntax_message(&message),
                "make it valid YAML (a JSON document is valid, too)",
            )
        })?;
        let mut root = located(root);
        reread_letters(&mut root, text);
        Ok(Self {
            file: file.to_owned(),
            root,
        })
    }

    /// Reads the whole document.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let value = Named(to_value(&self.root));
        serde_path_to_error::deserialize(value).map_err(|error| self.explain(&error))
    }

    /// A problem at `path`.
    pub fn problem(&self, path: &str, message: impl Into<String>, remedy: impl Into<String>) -> Problem {
        Problem {
            file: self.file.clone(),
            line: self.line(path),
            path: path.to_owned(),
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    fn explain(&self, error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
        let mut path = error.path().to_string();
        if path == "." {
            path.clear();
        }
        let message = error.inner().to_string();
        let remedy = if let Some(key) = quoted_after(&message, "unknown field ") {
            if path.rsplit('.').next() != Some(key.as_str()) {
                path = if path.is_empty() {
                    key
                } else {
                    format!("{path}.{key}")
                };
            }
            "remove it or correct its name"
        } else if message.starts_with("missing field") {
            "add it"
        } else {
            "correct the value"
        };
        self.problem(&path, message, remedy)
    }

    /// Every scalar, and every list and mapping with nothing in it, with its path and as JSON.
    pub fn leaves(&self) -> Vec<(String, String)> {
        let mut leaves = Vec::new();
        self.root.leaves("", &mut leaves);
        leaves
    }

    /// True when there is something at `path`.
    pub fn has(&self, path: &str) -> bool {
        self.find(path).1
    }

    /// The line of `path`, or of the closest parent that is there.
    fn line(&self, path: &str) -> u64 {
        self.find(path).0
    }

    /// The line of `path` or of its closest parent, and whether it is its own.
    fn find(&self, path: &str) -> (u64, bool) {
        let mut here = &self.root;
        let mut line = here.line;
        let mut rest = path;
        while !rest.is_empty() {
            let Some((found, value, left)) = here.step(rest) else {
                return (line, false);
            };
            (line, here) = (found, value);
            rest = left.strip_prefix('.').unwrap_or(left);
        }
        (line, true)
    }
}

impl Located {
    fn leaves(&self, path: &str, leaves: &mut Vec<(String, String)>) {
        match &self.node {
            Node::Mapping(entries) if !entries.is_empty() => {
                for (key, _, value) in entries {
                    let place = if path.is_empty() {
                        key.clone()
                    } else {
                        format!("{path}.{key}")
                    };
                    value.leaves(&place, leaves);
                }
            }
            Node::Sequence(items) if !items.is_empty() => {
                for (n, item) in items.iter().enumerate() {
                    item.leaves(&format!("{path}[{n}]"), leaves);
                }
            }
            _ if path.is_empty() => {}
            _ => leaves.push((path.to_owned(), to_value(self).to_string())),
        }
    }

    /// What the first step of a path leads to, with its line, and the rest of the path. Keys may have dots in them.
    fn step<'a, 'p>(&'a self, path: &'p str) -> Option<(u64, &'a Self, &'p str)> {
        match &self.node {
            Node::Mapping(entries) => {
                let left = |key: &str| {
                    path.strip_prefix(key)
                        .filter(|left| left.is_empty() || left.starts_with(['.', '[']))
                };
                let named = entries.iter().filter(|(key, _, _)| left(key).is_some());
                let (key, line, value) = named.max_by_key(|(key, _, _)| key.len())?;
                Some((*line, value, left(key)?))
            }
            Node::Sequence(items) => {
                let (index, left) = path.strip_prefix('[')?.split_once(']')?;
                let item = items.get(index.parse::<usize>().ok()?)?;
                Some((item.line, item, left))
            }
            Node::Scalar(_) => None,
        }
    }
}

/// What the parser says, without its own label and place, and without what only programmers can change.
fn syntax_message(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let first = match first.strip_prefix("line ").and_then(|rest| rest.split_once(": ")) {
        Some((_, message)) => message,
        None => first,
    };
    let told = first.split(", set DuplicateKeyPolicy").next().unwrap_or(first);
    told.to_owned()
}

fn quoted_after(message: &str, marker: &str) -> Option<String> {
    let rest = &message[message.find(marker)? + marker.len()..];
    rest.split('`').nth(1).map(str::to_owned)
}

fn located(spanned: Spanned<Node>) -> Located {
    let span = spanned.referenced.span();
    let index = |bytes: Option<u64>| usize::try_from(bytes.unwrap_or(0)).unwrap_or(usize::MAX);
    let start = index(span.byte_offset());
    Located {
        line: spanned.referenced.line(),
        span: start..start.saturating_add(index(span.byte_len())),
        node: spanned.value,
    }
}

/// Makes a letter of what the parser took for a switch: `n` is the name of a parameter, and a letter where the files of
/// others come from.
fn reread_letters(located: &mut Located, text: &str) {
    match &mut located.node {
        Node::Scalar(value @ Value::Bool(_)) => {
            let letter = text.get(located.span.clone()).map(str::trim);
            if let Some(letter @ ("n" | "N" | "y" | "Y")) = letter {
                *value = letter.into();
            }
        }
        Node::Scalar(_) => {}
        Node::Sequence(items) => items.iter_mut().for_each(|item| reread_letters(item, text)),
        Node::Mapping(entries) => entries
            .iter_mut()
            .for_each(|(_, _, value)| reread_letters(value, text)),
    }
}

fn expand(located: &mut Located, environment: &Environment) {
    match &mut located.node {
        Node::Scalar(Value::String(text)) => {
            if let Some(expanded) = environment.expand(text) {
                *text = expanded;
            }
        }
        Node::Scalar(_) => {}
        Node::Sequence(items) => items.iter_mut().for_each(|item| expand(item, environment)),
        Node::Mapping(entries) => entries
            .iter_mut()
            .for_each(|(_, _, value)| expand(value, environment)),
    }
}

fn to_value(located: &Located) -> Value {
    match &located.node {
        Node::Scalar(value) => value.clone(),
        Node::Sequence(items) => Value::Array(items.iter().map(to_value).collect()),
        Node::Mapping(entries) => Value::Object(
            entries
                .iter()
                .map(|(key, _, value)| (key.clone(), to_value(value)))
                .collect(),
        ),
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element::<Spanned<Node>>()? {
            items.push(located(item));
        }
        Ok(Node::Sequence(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut entries: Vec<(String, u64, Located)> = Vec::new();
        while let Some(key) = access.next_key::<Spanned<String>>()? {
            let value = located(access.next_value::<Spanned<Node>>()?);
            if entries.iter().any(|(known, _, _)| *known == key.value) {
                return Err(de::Error::custom(format!("duplicate key `{}`", key.value)));
            }
            entries.push((key.value, key.referenced.line(), value));
        }
        Ok(Node::Mapping(entries))
    }
}

/// Accepts a number, or text that an expanded variable left and that reads as one.
pub fn number<'de, D: Deserializer<'de>, T: std::str::FromStr>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = match Value::deserialize(deserializer)? {
        Value::Null => return Ok(None),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text,
        _ => return Err(de::Error::custom("expected a number")),
    };
    text.trim()
        .parse()
        .map(Some)
        .map_err(|_| de::Error::custom(format!("expected a number, found \"{text}\"")))
}

/// Accepts true and false, or text that an expanded variable left and that reads so.
pub fn switch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::Bool(value) => Ok(Some(value)),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
        _ => Err(de::Error::custom("expected true or false")),
    }
}

/// Accepts a list of words, or words with commas between them, as a flag takes them.
pub fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    let word = |value| match value {
        Value::String(word) => Ok(word),
        _ => Err(de::Error::custom("expected a list of words")),
    };
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.split(',').map(|word| word.trim().to_owned()).collect())),
        Value::Array(items) => items.into_iter().map(word).collect::<Result<_, _>>().map(Some),
        _ => Err(de::Error::custom("expected a list of words")),
    }
}

/// Accepts text, or a number as it was written.
pub fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        Value::Number(number) => Ok(Some(number.to_string())),
        _ => Err(de::Error::custom("expected text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Root {
        models: Vec<Entry>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Entry {
        id: String,
        #[serde(default, deserialize_with = "number")]
        weight: Option<f64>,
    }

    fn environment() -> Environment {
        Environment::from_pairs([("HOST", "h.example"), ("WEIGHT", "0.25")])
    }

    #[test]
    fn an_unknown_key_is_named_with_its_path_and_line() {
        let text = "models:\n  - id: a\n  - id: b\n    wieght: 1\n";
        let document = Document::parse("models.yaml", text, &environment()).expect("parse");

        let problem = document.read::<Root>().expect_err("unknown key");

        assert_eq!((problem.line, problem.path.as_str()), (4, "models[1].wieght"));
        assert!(
            problem
                .to_string()
                .starts_with("models.yaml:4: models[1].wieght: unknown field `wieght`"),
            "{problem}"
        );
    }

    #[test]
    fn variables_expand_inside_scalars_with_defaults() {
        let text = "models:\n  - id: http://${HOST}/${PATH_X:-v1}\n    weight: ${WEIGHT}\n";
        let document = Document::parse("m", text, &environment()).expect("parse");

        let root: Root = document.read().expect("read");

        assert_eq!(
            root.models[0],
            Entry {
                id: "http://h.example/v1".into(),
                weight: Some(0.25)
            }
        );
    }

    #[test]
    fn a_letter_is_a_letter_and_no_switch() {
        let text = "# é\nmodels: [n, seed, 'y', Y, no, yes, true, off]\nn: n\n";
        let document = Document::parse("m", text, &environment()).expect("parse");

        let value: Value = document.read().expect("read");

        let due = serde_json::json!({"models": ["n", "seed", "y", "Y", false, true, true, false], "n": "n"});
        assert_eq!(value, due);
    }

    #[test]
    fn a_json_document_loads_as_it_is() {
        let document =
            Document::parse("m", r#"{"models": [{"id": "a", "weight": 2}]}"#, &environment()).expect("parse");
        assert_eq!(document.read::<Root>().expect("read").models[0].weight, Some(2.0));
    }

    #[test]
    fn broken_yaml_tells_its_line() {
        let problem = Document::parse("m.yaml", "models:\n  - id: [\n", &environment()).expect_err("broken");
        assert!(problem.line >= 2, "{problem}");
    }

    #[test]
    fn a_key_given_twice_is_refused() {
        let problem =
            Document::parse("m.yaml", "models: []\nmodels: []\n", &environment()).expect_err("twice");
        assert!(problem.message.contains("models"), "{problem}");
    }
}
