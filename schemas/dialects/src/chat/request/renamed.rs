//! Names of tools as upstreams take them: at most 64 letters, digits, `_` and `-`. A name that is none is changed,
//! always in the same way, and can be told back.

use std::collections::{HashMap, HashSet};

use crate::chat::mint;
use crate::superset::tool::{Input, Known, Names, Tool};

/// Longest name.
const NAME_BYTES_MAX: usize = 64;
/// Letters and digits that tell two changed names apart.
const MARK_CHARS: usize = 8;

/// The tools of a request under both names.
pub(crate) struct Renamed<'c> {
    sent: HashMap<(Option<&'c str>, &'c str), String>,
    names: Names,
}

impl<'c> Renamed<'c> {
    /// Names the tools that are offered. Those that keep their names are named first.
    pub(crate) fn new(tools: &'c [Tool]) -> Self {
        let mut renamed = Self {
            sent: HashMap::with_capacity(tools.len()),
            names: Names::default(),
        };
        let mut used = HashSet::with_capacity(tools.len());
        let keeps = |tool: &&Tool| tool.namespace.is_none() && is_legal(&tool.name);
        for tool in tools
            .iter()
            .filter(keeps)
            .chain(tools.iter().filter(|tool| !keeps(tool)))
        {
            let key = (tool.namespace.as_deref(), tool.name.as_str());
            if renamed.sent.contains_key(&key) {
                continue;
            }
            let mut sent = changed(key.0, key.1, "");
            if !used.insert(sent.clone()) {
                sent = changed(key.0, key.1, "again");
                used.insert(sent.clone());
            }
            let custom = matches!(tool.input, Input::Text(_));
            if custom || sent != tool.name || tool.namespace.is_some() {
                let known = Known {
                    name: tool.name.clone(),
                    namespace: tool.namespace.clone(),
                    custom,
                };
                renamed.names.note(sent.clone(), known);
            }
            renamed.sent.insert(key, sent);
        }
        renamed
    }

    /// The upstream's name of a tool, offered or not.
    pub(crate) fn sent(&self, namespace: Option<&'c str>, name: &'c str) -> String {
        match self.sent.get(&(namespace, name)) {
            Some(sent) => sent.clone(),
            None => changed(namespace, name, ""),
        }
    }

    /// What the answer is read with.
    pub(crate) fn into_names(self) -> Names {
        self.names
    }
}

fn is_legal(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_legal_byte)
}

const fn is_legal_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// A legal name made of a tool's; with `salt` another one.
fn changed(namespace: Option<&str>, name: &str, salt: &str) -> String {
    let whole = match namespace {
        Some(namespace) => format!("{namespace}__{name}"),
        None => name.to_owned(),
    };
    if salt.is_empty() && is_legal(&whole) {
        return whole;
    }
    let mark = mint::letters(mint::digest(&[&whole, salt]), MARK_CHARS);
    let legal = whole.chars().map(|letter| match u8::try_from(letter) {
        Ok(byte) if is_legal_byte(byte) => letter,
        _ => '_',
    });
    let mut sent: String = legal.take(NAME_BYTES_MAX - MARK_CHARS - 1).collect();
    sent.push('_');
    sent.push_str(&mark);
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(namespace: Option<&str>, name: &str) -> Tool {
        Tool {
            name: name.to_owned(),
            namespace: namespace.map(ToOwned::to_owned),
            description: None,
            input: Input::Schema(None),
            strict: None,
            cache: None,
        }
    }

    #[test]
    fn names_that_no_upstream_takes_are_changed_and_told_back() {
        let long = "x".repeat(80);
        let tools = [
            tool(None, "mcp/files.read"),
            tool(None, &long),
            tool(Some("web"), "find"),
            tool(None, "web__find"),
            tool(None, "plain"),
        ];

        let renamed = Renamed::new(&tools);
        let sent: Vec<String> = tools
            .iter()
            .map(|tool| renamed.sent(tool.namespace.as_deref(), &tool.name))
            .collect();
        let names = renamed.into_names();

        assert!(sent.iter().all(|name| is_legal(name)), "{sent:?}");
        assert_eq!(sent.iter().collect::<HashSet<_>>().len(), tools.len());
        assert_eq!((sent[3].as_str(), sent[4].as_str()), ("web__find", "plain"));
        for (tool, sent) in tools.iter().zip(&sent).take(3) {
            let known = names.known(sent).expect("noted");
            assert_eq!((&known.name, &known.namespace), (&tool.name, &tool.namespace));
        }
        assert_eq!(names.known("plain"), None);
    }
}
