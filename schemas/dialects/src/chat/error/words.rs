//! The words by which upstreams name a failure, and the HTTP statuses that they stand for. A status is what the circuit,
//! the credential and the caller are judged by; inside an answer of status 200 there may be nothing but a word.

use super::{ErrorCode, UpstreamError, says_overflow};

/// Words, without their case and what stands between their letters, and without a last `error`.
const WORDS: [(u16, &[&str]); 11] = [
    (
        400,
        &[
            "badrequest",
            "contentfilter",
            "contentpolicyviolation",
            "contextlengthexceeded",
            "contextwindowexceeded",
            "emptyimagefile",
            "exceedcontextsize",
            "failedprecondition",
            "failedtodownloadimage",
            "imagecontentpolicyviolation",
            "imagefilenotfound",
            "imagefiletoolarge",
            "imageparse",
            "imagetoolarge",
            "imagetoosmall",
            "invalidargument",
            "invalidbase64image",
            "invalidimage",
            "invalidimageformat",
            "invalidimagemode",
            "invalidimageurl",
            "invalidprompt",
            "invalidrequest",
            "stringabovemaxlength",
            "unimplemented",
            "unprocessableentity",
            "unsupportedimagemediatype",
            "unsupportedparameter",
            "unsupportedvalue",
        ],
    ),
    (
        401,
        &[
            "authentication",
            "invalidapikey",
            "unauthenticated",
            "unauthorized",
        ],
    ),
    (402, &["billing", "insufficientquota"]),
    (
        403,
        &[
            "forbidden",
            "insufficientpermissions",
            "permission",
            "permissiondenied",
        ],
    ),
    (404, &["modelnotfound", "notfound"]),
    (413, &["requesttoolarge"]),
    (
        429,
        &[
            "ratelimit",
            "ratelimitexceeded",
            "resourceexhausted",
            "toomanyrequests",
        ],
    ),
    (500, &["api", "internal", "internalserver", "server"]),
    (
        503,
        &[
            "engineoverloaded",
            "serverisoverloaded",
            "serviceunavailable",
            "slowdown",
            "unavailable",
        ],
    ),
    (
        504,
        &["deadlineexceeded", "gatewaytimeout", "requesttimeout", "timeout"],
    ),
    (529, &["overloaded"]),
];

impl UpstreamError {
    /// The HTTP status that it amounts to: the one that it names by a number, else the one that its code or its type is
    /// the word for, else 400 where it says that the prompt does not fit. What a moderator has refused is a request that
    /// is refused. `None` where it says nothing that is known.
    pub fn amounts_to(&self) -> Option<u16> {
        let word = || self.code_word().and_then(status_of_word);
        let kind = || self.kind.as_deref().and_then(status_of_word);
        let overflow = || self.speaks_of_overflow().then_some(400);
        let told = self.status.or_else(word).or_else(kind).or_else(overflow);
        told.map(|status| self.moderates(status))
    }

    /// What an answer of this status amounts to whose body says this: a moderator's refusal, 403 with its reasons, speaks
    /// of the request and of no credential.
    pub const fn moderates(&self, status: u16) -> u16 {
        if status == 403 && self.moderated {
            400
        } else {
            status
        }
    }

    /// True when its code, its type or its message says that the prompt does not fit.
    pub fn speaks_of_overflow(&self) -> bool {
        let told = [self.code_word(), self.kind.as_deref(), self.message.as_deref()];
        told.into_iter()
            .flatten()
            .any(|text| says_overflow(text.as_bytes()))
    }

    fn code_word(&self) -> Option<&str> {
        match &self.code {
            Some(ErrorCode::Text(word)) => Some(word),
            _ => None,
        }
    }
}

/// The status that a word stands for.
fn status_of_word(word: &str) -> Option<u16> {
    let letter = |symbol: char| {
        symbol
            .is_ascii_alphanumeric()
            .then(|| symbol.to_ascii_lowercase())
    };
    let plain: String = word.chars().filter_map(letter).collect();
    let plain = plain.strip_suffix("error").unwrap_or(&plain);
    WORDS
        .iter()
        .find(|(_, words)| words.contains(&plain))
        .map(|(status, _)| *status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(kind: &str, code: &str, message: &str) -> UpstreamError {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        UpstreamError {
            message: text(message),
            kind: text(kind),
            code: text(code).map(ErrorCode::Text),
            ..UpstreamError::default()
        }
    }

    #[test]
    fn words_stand_for_statuses_however_they_are_written() {
        for (word, status) in [
            ("invalid_request_error", 400),
            ("BadRequestError", 400),
            ("INVALID_ARGUMENT", 400),
            ("authentication_error", 401),
            ("billing_error", 402),
            ("PERMISSION_DENIED", 403),
            ("not_found_error", 404),
            ("request_too_large", 413),
            ("rate_limit_error", 429),
            ("api_error", 500),
            ("server_error", 500),
            ("InternalServerError", 500),
            ("slow_down", 503),
            ("timeout_error", 504),
            ("overloaded_error", 529),
        ] {
            assert_eq!(named(word, "", "").amounts_to(), Some(status), "{word}");
            assert_eq!(named("", word, "").amounts_to(), Some(status), "{word}");
        }
        for word in ["", "error", "odd", "engine_on_fire", "not", "429th"] {
            assert_eq!(named(word, word, "").amounts_to(), None, "{word}");
        }
    }

    #[test]
    fn a_number_says_more_than_a_code_and_a_code_more_than_a_type() {
        let typed = named("invalid_request_error", "invalid_api_key", "");
        assert_eq!(typed.amounts_to(), Some(401));
        assert_eq!(
            named("server_error", "rate_limit_exceeded", "").amounts_to(),
            Some(429)
        );
        assert_eq!(named("invalid_request_error", "odd", "").amounts_to(), Some(400));
        let numbered = UpstreamError {
            status: Some(503),
            ..typed
        };
        assert_eq!(numbered.amounts_to(), Some(503));
    }

    #[test]
    fn a_prompt_that_does_not_fit_is_known_by_any_of_its_words() {
        for told in [
            named("", "context_length_exceeded", ""),
            named("exceed_context_size_error", "", "no"),
            named("invalid_request_error", "", "prompt is too long: 9 > 8"),
            named("odd", "odder", "This model's maximum context length is 8"),
        ] {
            assert!(told.speaks_of_overflow(), "{told:?}");
            assert_eq!(told.amounts_to(), Some(400), "{told:?}");
        }
        assert!(!named("invalid_request_error", "", "too many tools").speaks_of_overflow());
    }
}
