//! What a models file does not say although it should: a default that refuses what the provider can do.

use schemas::catalog::ProviderKind;

use super::{Context, Ready};
use crate::yaml::Problem;

impl Context<'_> {
    /// Every model of these providers takes tools, and a file that does not say so has them refused.
    pub(super) fn note_tools(&self, legs: &[Ready], problems: &mut Vec<Problem>) {
        let takes_tools = |ready: &Ready| {
            matches!(
                ready.endpoint.kind,
                ProviderKind::Anthropic | ProviderKind::Gemini | ProviderKind::Vertex
            )
        };
        let is_said = self.entry.supports_tools.is_some()
            || legs.iter().any(|ready| ready.leg.supports_tools.is_some());
        if is_said || !legs.iter().any(takes_tools) {
            return;
        }
        problems.push(self.problem(
            "id",
            format!(
                "nothing says that \"{}\" takes tools, so calls with tools are refused",
                self.entry.id
            ),
            "add `supports_tools: true`, or false if it is meant",
        ));
    }
}
