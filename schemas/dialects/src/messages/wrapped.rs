//! Free text where only objects can stand.

/// Free text as the arguments of a tool that takes it in a member.
pub(super) fn free_text(text: &str) -> String {
    #[derive(serde::Serialize)]
    struct Wrapped<'a> {
        input: &'a str,
    }
    serde_json::to_string(&Wrapped { input: text }).unwrap_or_else(|_| "{}".to_owned())
}
