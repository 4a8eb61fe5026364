//! What servers of the OpenAI chat API tolerate, by kind of server. A new kind is an entry of this table, not code.

/// What a server of a kind takes, beside the chat API as OpenAI documents it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one server")]
pub struct Profile {
    /// Its name in `models.yaml`.
    pub name: &'static str,
    /// Takes `max_completion_tokens` rather than `max_tokens`.
    pub max_completion_tokens: bool,
    /// Refuses a system message that is not the first, or a second one.
    pub one_system: bool,
    /// Knows the role `developer`.
    pub developer: bool,
    /// Takes `top_k` and `min_p`.
    pub top_k: bool,
    /// Takes response formats with a schema.
    pub json_schema: bool,
    /// Takes `tool_choice: required`.
    pub tool_choice_required: bool,
    /// How it is told how much to think.
    pub thinking: Thinking,
    /// Wants earlier thoughts back as `reasoning_content`.
    pub thoughts_back: bool,
    /// Refuses a tool without `parameters`.
    pub parameters_required: bool,
    /// Ids of calls are exactly nine letters or digits.
    pub short_call_ids: bool,
    /// Keeps `cache_control` on parts.
    pub cache_control: bool,
    /// Parameters it refuses although they are harmless to leave out: dropped, and reported.
    pub drops: &'static [&'static str],
    /// The name of `seed`.
    pub seed: &'static str,
}

/// How a server is told how much to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    /// `reasoning_effort`.
    Effort,
    /// `chat_template_kwargs.enable_thinking`, and `reasoning_effort` beside it.
    Template,
    /// `thinking: {"type": "enabled"}`.
    Switch,
    /// `reasoning: {"effort"}` or `{"max_tokens"}`.
    Object,
    /// Not at all.
    None,
}

/// What is assumed of a server that is not known.
pub const DEFAULT: Profile = Profile {
    name: "default",
    max_completion_tokens: false,
    one_system: true,
    developer: false,
    top_k: true,
    json_schema: true,
    tool_choice_required: true,
    thinking: Thinking::Effort,
    thoughts_back: false,
    parameters_required: false,
    short_call_ids: false,
    cache_control: false,
    drops: &[],
    seed: "seed",
};

/// Every profile that has a name of its own.
const PROFILES: &[Profile] = &[DEFAULT];

/// The profile of a name.
pub fn named(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}
