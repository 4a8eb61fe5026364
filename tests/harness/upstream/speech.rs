//! Which dialect a scripted upstream speaks: that of the path it is called at, as providers do.

use super::request::Received;

/// A dialect of upstreams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speech {
    /// OpenAI's chat completions.
    Chat,
    /// OpenAI's older completions.
    Completions,
    /// OpenAI's embeddings.
    Embeddings,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages, also as Vertex serves it.
    Messages,
    /// Anthropic's counting of tokens.
    CountTokens,
    /// Gemini's generateContent, whole or streamed by the path.
    Gemini,
}

impl Speech {
    /// The dialect of a request.
    pub fn of(request: &Received) -> Self {
        let path = request.target.split('?').next().unwrap_or_default();
        let ends = |ending: &str| path.ends_with(ending);
        if ends("/messages/count_tokens") {
            Self::CountTokens
        } else if ends("/messages") || ends(":rawPredict") || ends(":streamRawPredict") {
            Self::Messages
        } else if ends(":generateContent") || ends(":streamGenerateContent") {
            Self::Gemini
        } else if ends("/responses") {
            Self::Responses
        } else if ends("/embeddings") {
            Self::Embeddings
        } else if ends("/completions") && !ends("/chat/completions") {
            Self::Completions
        } else {
            Self::Chat
        }
    }

    /// Whether a request asks for a stream, in the way of its dialect.
    pub(crate) fn streaming(self, request: &Received) -> bool {
        match self {
            Self::Gemini => request.target.contains(":streamGenerateContent"),
            Self::Embeddings | Self::CountTokens => false,
            _ => request.streaming(),
        }
    }

    /// An error inside an answer of status 200, whose status only the error itself can tell.
    pub(crate) fn error_inside(self, status: u16, message: &str) -> String {
        match self {
            Self::Chat | Self::Completions | Self::Embeddings => {
                serde_json::json!({"error": {"message": message, "type": "server_error", "param": null, "code": status}})
                    .to_string()
            }
            Self::Responses => {
                let error = serde_json::json!({"code": "server_error", "message": message});
                serde_json::json!({"type": "response.failed", "sequence_number": 2, "response": {"id": "resp_1",
                    "object": "response", "created_at": 1, "status": "failed", "model": "m", "output": [],
                    "error": error}})
                .to_string()
            }
            Self::Messages | Self::CountTokens | Self::Gemini => self.error(status, message),
        }
    }

    /// An error's body in the shape of the dialect.
    pub(crate) fn error(self, status: u16, message: &str) -> String {
        match self {
            Self::Messages | Self::CountTokens => {
                let kind = match status {
                    400 | 422 => "invalid_request_error",
                    401 => "authentication_error",
                    402 => "billing_error",
                    403 => "permission_error",
                    404 => "not_found_error",
                    413 => "request_too_large",
                    429 => "rate_limit_error",
                    504 => "timeout_error",
                    529 => "overloaded_error",
                    _ => "api_error",
                };
                serde_json::json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})
            }
            Self::Gemini => {
                let kind = match status {
                    400 => "INVALID_ARGUMENT",
                    401 => "UNAUTHENTICATED",
                    403 => "PERMISSION_DENIED",
                    404 => "NOT_FOUND",
                    429 => "RESOURCE_EXHAUSTED",
                    503 => "UNAVAILABLE",
                    504 => "DEADLINE_EXCEEDED",
                    _ => "INTERNAL",
                };
                serde_json::json!({"error": {"code": status, "message": message, "status": kind}})
            }
            _ => {
                let kind = match status {
                    400..=404 | 413 | 422 => "invalid_request_error",
                    429 => "rate_limit_error",
                    _ => "server_error",
                };
                serde_json::json!({"error": {"message": message, "type": kind, "param": null, "code": null}})
            }
        }
        .to_string()
    }
}
