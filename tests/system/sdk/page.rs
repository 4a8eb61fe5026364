//! The page that says how clients are pointed at a node, docs/clients.md: its lines are what these tests use.

use harness::Node;

const PAGE: &str = include_str!("../../../docs/clients.md");
/// What stands for a node and for a key on the page; its model is `m`.
const ADDRESS: &str = "http://127.0.0.1:3333";
const KEY: &str = "sk-…";
const FENCE: &str = "```";

/// The code of the page that follows the paragraph beginning with `client`, pointed at a node.
pub(crate) fn code(client: &str, node: &Node, key: &str) -> String {
    let (_, rest) = PAGE
        .split_once(&format!("\n\n{client}"))
        .unwrap_or_else(|| panic!("the page has nothing of {client}"));
    let mut parts = rest.split(FENCE).skip(1);
    let (_language, code) = parts
        .next()
        .and_then(|block| block.split_once('\n'))
        .unwrap_or_else(|| panic!("the page has no code for {client}"));
    assert!(code.contains(ADDRESS), "{code}");
    code.replace(ADDRESS, &format!("http://{}", node.addr()))
        .replace(KEY, key)
}

/// The variables that such code exports.
pub(crate) fn exported(code: &str) -> Vec<(String, String)> {
    let exports = code.lines().filter_map(|line| line.strip_prefix("export "));
    exports
        .flat_map(|line| line.split(' '))
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
