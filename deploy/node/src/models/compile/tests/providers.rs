//! What each kind of provider presets, and which of its lines are refused.

use super::*;

use schemas::catalog::ResponsesUse;

fn endpoint(leg: &str) -> Endpoint {
    endpoint_of("m", leg)
}

fn endpoint_of(id: &str, leg: &str) -> Endpoint {
    let text = format!("models: [{{ id: {id}, supports_tools: true, route: [{leg}] }}]");
    let mut compiled = compiled(&text).expect("compile");
    assert!(compiled.problems.is_empty(), "{:?}", compiled.problems);
    compiled.endpoints.remove(0)
}

/// Kind, address, path and header of a leg.
fn place(leg: &str) -> (ProviderKind, String, String, String) {
    let endpoint = endpoint(leg);
    let format = endpoint.auth_format.replace("{api_key}", "K");
    (
        endpoint.kind,
        endpoint.backends[0].base_url.clone(),
        endpoint.chat_path,
        format!("{}: {format}", endpoint.auth_header),
    )
}

#[test]
fn the_apis_of_anthropic_and_google_are_served() {
    for (leg, kind, base_url, path, header) in [
        (
            "{ kind: anthropic, api_key: '${KEY}' }",
            ProviderKind::Anthropic,
            "https://api.anthropic.com",
            "/v1/messages",
            "x-api-key: K",
        ),
        (
            "{ kind: anthropic, base_url: 'http://h/v1/', api_key: '${KEY}', use_bearer_auth: true }",
            ProviderKind::Anthropic,
            "http://h/v1",
            "/messages",
            "authorization: Bearer K",
        ),
        (
            "{ kind: gemini, api_key: '${KEY}' }",
            ProviderKind::Gemini,
            "https://generativelanguage.googleapis.com",
            "/v1beta/models",
            "x-goog-api-key: K",
        ),
        (
            "{ kind: gemini, base_url: 'http://h/v1beta', api_key: '${KEY}' }",
            ProviderKind::Gemini,
            "http://h/v1beta",
            "/models",
            "x-goog-api-key: K",
        ),
        (
            "{ kind: claude, project: p-1, location: us-east5, credentials_file: account.json }",
            ProviderKind::Vertex,
            "https://us-east5-aiplatform.googleapis.com",
            "/v1/projects/p-1/locations/us-east5/publishers/anthropic/models",
            "authorization: Bearer K",
        ),
        (
            "{ kind: claude, project: p-1, api_key: '${KEY}', base_url: 'http://h' }",
            ProviderKind::Vertex,
            "http://h",
            "/v1/projects/p-1/locations/global/publishers/anthropic/models",
            "authorization: Bearer K",
        ),
        // As HybridInference knows it: the address names the model, the key has a header of its own.
        (
            "{ kind: claude, base_url: 'http://h/claude', api_key: '${KEY}' }",
            ProviderKind::Vertex,
            "http://h/claude",
            "/v1:",
            "api-key: K",
        ),
    ] {
        let expected = (kind, base_url.to_owned(), path.to_owned(), header.to_owned());
        assert_eq!(place(leg), expected, "{leg}");
    }
}

#[test]
fn a_service_account_is_read_from_its_file_by_whoever_holds_credentials() {
    let text =
        "models: [{ id: m, provider: claude, project: p, route: [{ credentials_file: account.json }] }]";

    let here = compiled(text).expect("compile");
    let elsewhere = compiled_where(text, Held::Elsewhere).expect("compile");

    let held = here
        .credentials
        .get(&here.endpoints[0].credentials[0])
        .expect("held");
    assert_eq!(held.reveal(), ACCOUNT);
    assert_eq!(elsewhere.endpoints, here.endpoints);
    assert!(
        elsewhere
            .credentials
            .values()
            .all(|secret| secret.reveal() != ACCOUNT)
    );
}

#[test]
fn claude_without_any_credential_is_left_out() {
    let text = "models: [{ id: m, provider: claude, project: p }]";

    let compiled = compiled(text).expect("compile");

    assert!(compiled.models.is_empty());
    let problem = &compiled.problems[0];
    assert!(
        problem.remedy.contains("GOOGLE_APPLICATION_CREDENTIALS"),
        "{problem}"
    );
}

#[test]
fn a_profile_is_chosen_by_name_by_kind_and_by_known_host() {
    for (leg, profile) in [
        ("{ kind: vllm, base_url: 'http://h' }", "vllm"),
        ("{ kind: llama.cpp, base_url: 'http://h' }", "llama.cpp"),
        ("{ kind: lm_studio, base_url: 'http://h' }", "lmstudio"),
        ("{ kind: groq, api_key: '${KEY}' }", "groq"),
        (
            "{ kind: openai_compat, base_url: 'https://api.deepseek.com' }",
            "deepseek",
        ),
        (
            "{ kind: openai_compat, base_url: 'https://api.moonshot.cn/v1' }",
            "kimi",
        ),
        (
            "{ kind: openai_compat, base_url: 'https://api.minimaxi.com/v1' }",
            "minimax",
        ),
        (
            "{ kind: openai_compat, base_url: 'https://api.z.ai/api/paas/v4' }",
            "zai",
        ),
        (
            "{ kind: openai_compat, base_url: 'https://API.Mistral.ai/v1' }",
            "mistral",
        ),
        (
            "{ kind: openai_compat, base_url: 'https://api.together.xyz/v1' }",
            "together",
        ),
        (
            "{ kind: openai_compat, base_url: 'https://api.together.xyz/v1', profile: default }",
            "default",
        ),
        (
            "{ kind: vllm, base_url: 'http://h', provider_profile: SGLang }",
            "sglang",
        ),
        ("{ kind: staging, base_url: 'http://h' }", ""),
        ("{ kind: openrouter, api_key: '${KEY}' }", "openrouter"),
        ("{ kind: anthropic, api_key: '${KEY}' }", ""),
    ] {
        assert_eq!(endpoint(leg).profile, profile, "{leg}");
    }
}

#[test]
fn a_provider_of_the_table_needs_its_name_and_a_key() {
    for (kind, url) in [
        ("openai", "https://api.openai.com/v1/chat/completions"),
        ("deepseek", "https://api.deepseek.com/v1/chat/completions"),
        ("kimi", "https://api.moonshot.ai/v1/chat/completions"),
        ("minimax", "https://api.minimax.io/v1/chat/completions"),
        ("zai", "https://api.z.ai/api/paas/v4/chat/completions"),
        ("groq", "https://api.groq.com/openai/v1/chat/completions"),
        ("mistral", "https://api.mistral.ai/v1/chat/completions"),
        ("together", "https://api.together.xyz/v1/chat/completions"),
        ("openrouter", "https://openrouter.ai/api/v1/chat/completions"),
    ] {
        let endpoint = endpoint(&format!("{{ kind: {kind}, api_key: '${{KEY}}' }}"));
        let base_url = &endpoint.backends[0].base_url;
        assert_eq!(format!("{base_url}{}", endpoint.chat_path), url);
        assert_eq!(endpoint.profile, kind);
        assert_eq!(endpoint.auth_header, "authorization");
    }
}

#[test]
fn a_processor_is_chosen_by_name_or_by_the_family_of_the_model() {
    for (id, leg, processor) in [
        ("m", "{ kind: vllm, base_url: 'http://h', processor: glm }", "glm"),
        (
            "m",
            "{ kind: vllm, base_url: 'http://h', processor: qwen_coder }",
            "qwen",
        ),
        ("Qwen3-Coder-30B", "{ kind: vllm, base_url: 'http://h' }", "qwen"),
        (
            "MiniMax-M2",
            "{ kind: vllm, base_url: 'http://h' }",
            "think_block",
        ),
        ("glm-4.6", "{ kind: vllm, base_url: 'http://h' }", ""),
        (
            "qwen3-coder",
            "{ kind: vllm, base_url: 'http://h', processor: default }",
            "",
        ),
        ("minimax", "{ kind: anthropic, api_key: '${KEY}' }", ""),
    ] {
        assert_eq!(endpoint_of(id, leg).processor, processor, "{id} {leg}");
    }
}

#[test]
fn a_leg_says_what_its_server_speaks_drops_and_wants() {
    let endpoint = endpoint(
        "{ kind: openai_compat, base_url: 'http://h/base', api_key: '${KEY}', responses: native, drop_params: true, \
         chat_path: own/chat, embeddings_path: v2/embed, auth_header_name: X-Key, auth_format: 'Key {api_key}', \
         extra_query: { api-version: '2026-01-01', name: 'a b&c' }, extra_headers: { X-Org: o-1 } }",
    );

    assert_eq!(endpoint.responses, ResponsesUse::Native);
    assert!(endpoint.drop_params);
    assert_eq!(endpoint.chat_path, "/own/chat");
    assert_eq!(endpoint.embeddings_path, "/v2/embed");
    assert_eq!(
        (endpoint.auth_header.as_str(), endpoint.auth_format.as_str()),
        ("x-key", "Key {api_key}")
    );
    assert_eq!(endpoint.query, "api-version=2026-01-01&name=a%20b%26c");
    assert_eq!(endpoint.extra_headers, [("x-org".to_owned(), "o-1".to_owned())]);
}

#[test]
fn openrouter_is_told_whom_to_ask_and_in_which_order() {
    for (leg, members) in [
        ("{ kind: openrouter, api_key: '${KEY}' }", ""),
        (
            "{ kind: 'openrouter[deepinfra/fp8]', api_key: '${KEY}', openrouter_sort: price }",
            r#""provider":{"allow_fallbacks":false,"order":["deepinfra/fp8"]}"#,
        ),
        (
            "{ kind: openrouter, api_key: '${KEY}', openrouter_pinned_provider: novita }",
            r#""provider":{"allow_fallbacks":false,"order":["novita"]}"#,
        ),
        (
            "{ kind: openrouter, api_key: '${KEY}', openrouter_sort: latency, \
             extra_body: { provider: { data_collection: deny }, transforms: [] } }",
            r#""provider":{"data_collection":"deny","sort":"latency"},"transforms":[]"#,
        ),
    ] {
        assert_eq!(endpoint(leg).extra_body, members, "{leg}");
    }
}

/// Legs, the key of the mistake, and a part of what is told.
const MISTAKES: &[(&str, &str, &str)] = &[
    ("{ kind: nonsense }", "kind", "not a kind"),
    (
        "{ kind: vllm, base_url: 'http://h', profile: wllm }",
        "profile",
        "not a profile",
    ),
    (
        "{ kind: vllm, base_url: 'http://h', provider_profile: x }",
        "provider_profile",
        "not a profile",
    ),
    ("{ kind: anthropic, profile: vllm }", "profile", "OpenAI API"),
    (
        "{ kind: vllm, base_url: 'http://h', processor: xml }",
        "processor",
        "not a processor",
    ),
    (
        "{ kind: vllm, base_url: 'http://h', responses: always }",
        "responses",
        "Responses",
    ),
    ("{ kind: gemini, responses: native }", "responses", "Responses"),
    (
        "{ kind: vllm, base_url: 'http://h', project: p }",
        "project",
        "kind claude",
    ),
    ("{ kind: claude, location: eu }", "", "no `project`"),
    ("{ kind: claude, project: 'a/b' }", "project", "no project"),
    ("{ kind: claude }", "", "no address"),
    (
        "{ kind: claude, project: p, credentials_file: gone.json }",
        "credentials_file",
        "cannot be read",
    ),
    (
        "{ kind: claude, project: p, api_key: '{\"type\":\"authorized_user\"}' }",
        "api_key",
        "service account",
    ),
    (
        "{ kind: vllm, base_url: 'http://h', api_key: \"a\\nb\" }",
        "api_key",
        "no header",
    ),
    (
        "{ kind: vllm, base_url: 'http://h', openrouter_sort: price }",
        "openrouter_sort",
        "openrouter",
    ),
    (
        "{ kind: openrouter, openrouter_sort: cheap }",
        "openrouter_sort",
        "not an order",
    ),
    (
        "{ kind: openrouter, openrouter_pinned_provider: 'a b' }",
        "openrouter_pinned_provider",
        "not a provider",
    ),
    (
        "{ kind: vllm, base_url: 'http://h', auth_header_name: 'a b' }",
        "auth_header_name",
        "name of a header",
    ),
    (
        "{ kind: vllm, base_url: 'http://h', auth_header_name: Host }",
        "auth_header_name",
        "gateway itself",
    ),
    (
        "{ kind: vllm, base_url: 'http://h', auth_format: 'Bearer' }",
        "auth_format",
        "{api_key}",
    ),
    (
        "{ kind: vllm, base_url: 'http://h', extra_headers: { Content-Length: '3' } }",
        "extra_headers.Content-Length",
        "gateway itself",
    ),
    (
        "{ kind: vllm, base_url: 'http://h', chat_path: '/a/../b' }",
        "chat_path",
        "not a path",
    ),
    (
        "{ kind: vllm, base_url: 'http://h', embeddings_path: ' ' }",
        "embeddings_path",
        "not a path",
    ),
    (
        "{ kind: vllm, base_url: 'http://h', api_keys: [{ key: a, min_role: boss }] }",
        "api_keys[0].min_role",
        "not a role",
    ),
    (
        "{ kind: vllm, base_url: 'http://h', api_keys: [{ key: a, role: pro }] }",
        "api_keys[0].role",
        "unknown field",
    ),
    (
        "{ kind: vllm, base_url: 'http://h', api_keys: [7] }",
        "api_keys[0]",
        "expected a credential",
    ),
];

#[test]
fn what_a_kind_cannot_be_told_is_refused_with_its_place() {
    for (leg, path, part) in MISTAKES {
        let text = format!("models:\n  - id: m\n    route:\n      - {leg}\n");
        let problem = compiled(&text).expect_err(leg);
        let expected = format!("models[0].route[0].{path}");
        assert_eq!(problem.path, expected.trim_end_matches('.'), "{leg}: {problem}");
        assert!(problem.message.contains(part), "{leg}: {problem}");
        assert_eq!(problem.line, 4, "{leg}");
        assert!(problem.remedy.len() > 5, "{leg}: {problem}");
    }
}

#[test]
fn a_model_of_a_provider_that_takes_tools_says_whether_it_does() {
    let told = |line: &str| {
        let text = format!(
            "models:\n  - id: a\n    provider: anthropic\n    api_key: '${{KEY}}'\n    {line}\n  \
             - id: b\n    provider: groq\n    api_key: '${{KEY}}'\n"
        );
        let compiled = compiled(&text).expect("compile");
        let problems: Vec<_> = compiled.problems.iter().map(ToString::to_string).collect();
        (compiled.models[0].supports_tools, problems)
    };

    let unsaid = "models.yaml:2: models[0].id: nothing says that \"a\" takes tools, so calls with tools are refused; \
                  add `supports_tools: true`, or false if it is meant";
    assert_eq!(told("name: A"), (false, vec![unsaid.to_owned()]));
    assert_eq!(told("supports_tools: true"), (true, vec![]));
    assert_eq!(told("supports_tools: false"), (false, vec![]));
    assert_eq!(told("route: [{ supports_tools: true }]"), (true, vec![]));
}
