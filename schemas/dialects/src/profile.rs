//! What servers of the OpenAI chat API tolerate, by kind of server, and where those are that somebody runs for all.
//! A new kind is an entry of this table, not code: its name is a kind and a profile in `models.yaml`, its address the
//! default, and endpoints at one of its hosts have it without being told.

/// What a server of a kind takes, beside the chat API as OpenAI documents it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one server")]
pub struct Profile {
    /// Its name in `models.yaml`.
    pub name: &'static str,
    /// Where its API is, without a trailing slash; empty for servers that everybody runs himself.
    pub base_url: &'static str,
    /// Further hosts at which it is, lower case.
    pub hosts: &'static [&'static str],
    /// Path of chat completions behind an address that does not end in `/v1`.
    pub chat_path: &'static str,
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
    /// Takes `tool_choice: required`, and a choice of one tool by name.
    pub tool_choice_required: bool,
    /// Its word for `required`.
    pub required: &'static str,
    /// How it is told how much to think.
    pub thinking: Thinking,
    /// Knows the effort `xhigh`; the others are told `high` instead.
    pub effort_xhigh: bool,
    /// Wants earlier thoughts back as `reasoning_content`.
    pub thoughts_back: bool,
    /// Wants proofs of thoughts and calls back: `reasoning_details`, `extra_content`.
    pub proofs_back: bool,
    /// Refuses a tool without `parameters`.
    pub parameters_required: bool,
    /// Refuses schemas with a `type` beside `anyOf`: it stands in the branches instead.
    pub types_in_branches: bool,
    /// Refuses a call whose result does not follow at once, and a result that follows no call.
    pub results_follow: bool,
    /// Ids of calls are exactly nine letters or digits.
    pub short_call_ids: bool,
    /// Keeps `cache_control` on parts.
    pub cache_control: bool,
    /// Most texts that end an answer.
    pub stops_max: usize,
    /// Parameters it refuses although they are harmless to leave out: dropped, and reported. `name` stands for the
    /// names of speakers.
    pub drops: &'static [&'static str],
    /// The name of `seed`.
    pub seed: &'static str,
    /// Members that it knows under another name, where a request passes as it came.
    pub renames: &'static [(&'static str, &'static str)],
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
    base_url: "",
    hosts: &[],
    chat_path: "/v1/chat/completions",
    max_completion_tokens: false,
    one_system: true,
    developer: false,
    top_k: true,
    json_schema: true,
    tool_choice_required: true,
    required: "required",
    thinking: Thinking::Effort,
    effort_xhigh: false,
    thoughts_back: false,
    proofs_back: false,
    parameters_required: false,
    types_in_branches: false,
    results_follow: false,
    short_call_ids: false,
    cache_control: false,
    stops_max: usize::MAX,
    drops: &[],
    seed: "seed",
    renames: &[],
};

/// Hints of OpenAI's own that strict servers answer with a refusal.
macro_rules! openai_hints {
    ($($more:literal),*) => {
        &[
            "store",
            "metadata",
            "verbosity",
            "service_tier",
            "safety_identifier",
            "prompt_cache_key",
            "prompt_cache_retention",
            "prompt_cache_options",
            $($more),*
        ]
    };
}

impl Profile {
    /// True when a request asks for another tier than the usual one, which the server does not have.
    pub fn lacks_tier_of(&self, body: &[u8]) -> bool {
        const TIER: &str = "service_tier";
        const USUAL: [&[u8]; 4] = [b"null", b"\"auto\"", b"\"default\"", b"\"standard_only\""];

        if !self.drops.contains(&TIER) || memchr::memmem::find(body, TIER.as_bytes()).is_none() {
            return false;
        }
        let members = crate::member::members(body).unwrap_or_default();
        members
            .into_iter()
            .filter(|member| member.name == TIER)
            .any(|member| body.get(member.value).is_some_and(|tier| !USUAL.contains(&tier)))
    }
}

/// Every profile that has a name of its own.
const PROFILES: &[Profile] = &[
    DEFAULT,
    // The API itself: reasoning models refuse `max_tokens`, and nothing samples by `top_k`.
    Profile {
        name: "openai",
        base_url: "https://api.openai.com/v1",
        max_completion_tokens: true,
        one_system: false,
        developer: true,
        top_k: false,
        effort_xhigh: true,
        stops_max: 4,
        ..DEFAULT
    },
    // Formats without a schema only; a turn with calls is refused when its thoughts are missing.
    Profile {
        name: "deepseek",
        base_url: "https://api.deepseek.com/v1",
        one_system: false,
        top_k: false,
        json_schema: false,
        thinking: Thinking::Switch,
        thoughts_back: true,
        stops_max: 16,
        ..DEFAULT
    },
    // Fixed sampling; thoughts of a turn with calls are wanted back; schemas are read by rules of its own.
    Profile {
        name: "kimi",
        base_url: "https://api.moonshot.ai/v1",
        hosts: &["api.moonshot.cn", "api.kimi.com"],
        types_in_branches: true,
        one_system: false,
        top_k: false,
        tool_choice_required: false,
        thinking: Thinking::Switch,
        thoughts_back: true,
        drops: &["top_p"],
        ..DEFAULT
    },
    // Calls and results in strict order, and a schema for every tool.
    Profile {
        name: "minimax",
        base_url: "https://api.minimax.io/v1",
        hosts: &["api.minimaxi.com", "api.minimax.chat"],
        results_follow: true,
        top_k: false,
        tool_choice_required: false,
        thinking: Thinking::None,
        parameters_required: true,
        ..DEFAULT
    },
    // One text that ends an answer, and tools only as the model likes.
    Profile {
        name: "zai",
        base_url: "https://api.z.ai/api/paas/v4",
        hosts: &["open.bigmodel.cn"],
        chat_path: "/chat/completions",
        one_system: false,
        top_k: false,
        json_schema: false,
        tool_choice_required: false,
        thinking: Thinking::Switch,
        thoughts_back: true,
        stops_max: 1,
        ..DEFAULT
    },
    // Engines that render chat templates: most templates refuse a second system message.
    Profile {
        name: "vllm",
        thinking: Thinking::Template,
        thoughts_back: true,
        ..DEFAULT
    },
    Profile {
        name: "sglang",
        thinking: Thinking::Template,
        thoughts_back: true,
        ..DEFAULT
    },
    Profile {
        name: "llama.cpp",
        developer: true,
        thinking: Thinking::Template,
        thoughts_back: true,
        ..DEFAULT
    },
    // Leaves out in silence what it does not know: `top_k`, `tool_choice`, customers.
    Profile {
        name: "ollama",
        one_system: false,
        top_k: false,
        tool_choice_required: false,
        drops: &["user", "parallel_tool_calls"],
        ..DEFAULT
    },
    Profile {
        name: "lmstudio",
        ..DEFAULT
    },
    // Answers 400 to names of speakers, and to more than four texts that end an answer.
    Profile {
        name: "groq",
        base_url: "https://api.groq.com/openai/v1",
        max_completion_tokens: true,
        one_system: false,
        top_k: false,
        stops_max: 4,
        drops: openai_hints!("name"),
        ..DEFAULT
    },
    // Answers 422 to every member that it does not know, and always tells usage on streams.
    Profile {
        name: "mistral",
        base_url: "https://api.mistral.ai/v1",
        hosts: &["codestral.mistral.ai"],
        one_system: false,
        top_k: false,
        required: "any",
        thinking: Thinking::None,
        short_call_ids: true,
        drops: openai_hints!("name", "user", "stream_options"),
        seed: "random_seed",
        renames: &[("seed", "random_seed"), ("max_completion_tokens", "max_tokens")],
        ..DEFAULT
    },
    Profile {
        name: "together",
        base_url: "https://api.together.xyz/v1",
        hosts: &["api.together.ai"],
        ..DEFAULT
    },
    // Speaks for many: keeps what their caches and their thoughts need.
    Profile {
        name: "openrouter",
        base_url: "https://openrouter.ai/api/v1",
        one_system: false,
        developer: true,
        thinking: Thinking::Object,
        effort_xhigh: true,
        thoughts_back: true,
        proofs_back: true,
        cache_control: true,
        ..DEFAULT
    },
    // Gemini behind its chat API: refuses a call whose signature is missing.
    Profile {
        name: "google",
        base_url: "https://generativelanguage.googleapis.com/v1beta/openai",
        chat_path: "/chat/completions",
        one_system: false,
        top_k: false,
        proofs_back: true,
        ..DEFAULT
    },
];

/// The profile of a name. Case, and what divides its words, do not matter: `LM Studio` is `lmstudio`.
pub fn named(name: &str) -> Option<&'static Profile> {
    let legal = |letter: char| letter.is_ascii_alphanumeric() || "._- ".contains(letter);
    if name.is_empty() || !name.chars().all(legal) {
        return None;
    }
    let letters = |text: &str| -> String {
        let kept = text.chars().filter(char::is_ascii_alphanumeric);
        kept.map(|letter| letter.to_ascii_lowercase()).collect()
    };
    let exactly = PROFILES.iter().find(|profile| profile.name == name);
    exactly.or_else(|| {
        let name = letters(name);
        PROFILES.iter().find(|profile| letters(profile.name) == name)
    })
}

/// The profile of the server that somebody runs at a host, given in lower case.
pub fn of_host(host: &str) -> Option<&'static Profile> {
    let own = |profile: &Profile| profile.base_url.strip_prefix("https://")?.split('/').next();
    PROFILES
        .iter()
        .find(|profile| own(profile) == Some(host) || profile.hosts.contains(&host))
}

/// The name of every profile.
pub fn names() -> impl Iterator<Item = &'static str> {
    PROFILES.iter().map(|profile| profile.name)
}

#[cfg(test)]
mod documents;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_server_has_one_entry() {
        let names: std::collections::BTreeSet<&str> = PROFILES.iter().map(|profile| profile.name).collect();
        let known = [
            "default",
            "openai",
            "deepseek",
            "kimi",
            "minimax",
            "zai",
            "vllm",
            "sglang",
            "llama.cpp",
            "ollama",
            "lmstudio",
            "groq",
            "mistral",
            "together",
            "openrouter",
            "google",
        ];

        assert_eq!(names.len(), PROFILES.len());
        assert_eq!(names, known.into());
        assert_eq!(named("mistral").map(|profile| profile.seed), Some("random_seed"));
        assert_eq!(named(""), None);
    }

    #[test]
    fn names_are_found_however_their_words_are_divided() {
        for (written, name) in [
            ("llama.cpp", "llama.cpp"),
            ("llama_cpp", "llama.cpp"),
            ("LM Studio", "lmstudio"),
            ("lm-studio", "lmstudio"),
            ("Groq", "groq"),
        ] {
            assert_eq!(
                named(written).map(|profile| profile.name),
                Some(name),
                "{written}"
            );
        }
        for other in ["groqs", "groq[]", "", "-", "gröq"] {
            assert_eq!(named(other), None, "{other}");
        }
    }

    #[test]
    fn a_server_that_somebody_runs_is_known_by_each_of_its_hosts_and_no_host_is_two() {
        for (host, name) in [
            ("api.openai.com", "openai"),
            ("api.deepseek.com", "deepseek"),
            ("api.moonshot.cn", "kimi"),
            ("api.minimax.io", "minimax"),
            ("open.bigmodel.cn", "zai"),
            ("api.groq.com", "groq"),
            ("codestral.mistral.ai", "mistral"),
            ("api.together.xyz", "together"),
            ("openrouter.ai", "openrouter"),
            ("generativelanguage.googleapis.com", "google"),
        ] {
            assert_eq!(of_host(host).map(|profile| profile.name), Some(name), "{host}");
        }
        assert_eq!(of_host("127.0.0.1"), None);
        assert_eq!(of_host(""), None);
        let mut hosts: Vec<&str> = PROFILES
            .iter()
            .flat_map(|profile| profile.hosts.iter().copied())
            .collect();
        let count = hosts.len();
        hosts.sort_unstable();
        hosts.dedup();
        assert_eq!(hosts.len(), count);
    }

    #[test]
    fn another_tier_than_the_usual_one_is_a_demand_where_the_server_has_none() {
        let groq = named("groq").expect("a profile");

        for tier in [r#""flex""#, r#""priority""#] {
            let body = format!(r#"{{"service_tier":{tier},"model":"m"}}"#);
            assert!(groq.lacks_tier_of(body.as_bytes()), "{tier}");
            assert!(!DEFAULT.lacks_tier_of(body.as_bytes()), "{tier}");
        }
        for usual in [r#""auto""#, r#""default""#, "null"] {
            let body = format!(r#"{{"service_tier":{usual},"x":"service_tier"}}"#);
            assert!(!groq.lacks_tier_of(body.as_bytes()), "{usual}");
        }
    }
}
