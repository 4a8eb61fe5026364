//! The rules of `make check`, each a pure function over a [`Tree`].

mod cases;
mod direction;
mod documents;
mod golden;
mod manifest;
mod source;
pub(crate) mod tree;
mod words;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;

/// One broken rule at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// File of the checkout, with the line where one is to blame; or a package.
    pub(crate) place: String,
    /// The rule, in a few words.
    pub(crate) rule: String,
    /// What to do about it.
    pub(crate) remedy: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}\n    remedy: {}", self.place, self.rule, self.remedy)
    }
}

/// What the rules look at: every text file of the checkout and what cargo says about the packages.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Text files that git knows or would add, by path from the root.
    pub(crate) files: Vec<File>,
    /// Packages of the workspace with their direct dependencies.
    pub(crate) packages: Vec<Package>,
    /// Names of all packages in the resolved graph, foreign ones included.
    pub(crate) graph: Vec<String>,
}

/// A text file of the checkout.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// Path from the root, with `/`.
    pub(crate) path: String,
    /// The whole text.
    pub(crate) text: String,
}

impl File {
    /// The last part of the path.
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Whether this is a Rust source file.
    fn rust(&self) -> bool {
        self.has_ending("rs")
    }

    /// Whether the file's name ends with a dot and `ending`.
    fn has_ending(&self, ending: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|it| it == ending)
    }
}

/// A package of the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Package {
    /// Name as in its manifest.
    pub(crate) name: String,
    /// Names of its direct dependencies of every kind: normal, development, build.
    pub(crate) dependencies: Vec<Dependency>,
}

/// A direct dependency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The depended-on package, before any renaming.
    pub(crate) name: String,
    /// False for development dependencies, which do not ship.
    pub(crate) shipped: bool,
}

/// All findings over `tree`, sorted by place.
pub(crate) fn run(tree: &Tree) -> Vec<Finding> {
    let mut findings = direction::check(&tree.packages, &tree.graph);
    findings.extend(tree.files.iter().flat_map(source::check));
    findings.extend(tree.files.iter().flat_map(words::check));
    findings.extend(tree.files.iter().flat_map(manifest::check));
    findings.extend(documents::check(&tree.files));
    findings.extend(cases::check(&tree.files));
    findings.extend(golden::check(&tree.files));
    findings.sort();
    findings
}
