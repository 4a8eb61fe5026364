//! Where a request that passes as it is goes on its upstream: judged as every server on the way might read it, and
//! passed byte for byte.

use std::borrow::Cow;

/// How often a path is decoded at most until nothing changes: who codes more often means no good.
const ROUNDS_MAX: usize = 8;
/// Characters that servers which normalize text take for a dot or a slash.
const LOOKALIKES: [char; 9] = [
    '\u{2024}', '\u{2025}', '\u{2026}', '\u{2044}', '\u{2215}', '\u{29F8}', '\u{FF0E}', '\u{FF0F}',
    '\u{FF3C}',
];

/// A path that is not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the path behind the endpoint must be plain: no '.' or '..' segments, no empty ones, and nothing coded that would change where it leads"
)]
pub struct Crooked;

/// Judges a path as it stands in a request, without query. It is fine when it begins with a slash and leads, however
/// often somebody decodes it, to the same place below the root.
pub fn judge(path: &str) -> Result<(), Crooked> {
    if !path.starts_with('/') {
        return Err(Crooked);
    }
    let slashes = count_slashes(path);
    let mut text: Cow<'_, str> = Cow::Borrowed(path);
    for round in 0..ROUNDS_MAX {
        plain(&text, slashes, round > 0)?;
        match decoded(&text) {
            Some(Cow::Borrowed(_)) => return Ok(()),
            Some(Cow::Owned(next)) => text = Cow::Owned(next),
            // Once decoded, a sign of percent may be one.
            None if round > 0 => return Ok(()),
            None => return Err(Crooked),
        }
    }
    Err(Crooked)
}

fn count_slashes(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'/').count()
}

/// One reading of the path. `is_decoded`: it is not how it was sent.
fn plain(text: &str, slashes: usize, is_decoded: bool) -> Result<(), Crooked> {
    let odd = |character: char| {
        character.is_control() || matches!(character, '\\' | '#') || LOOKALIKES.contains(&character)
    };
    let asks = is_decoded && text.contains('?');
    if asks || text.chars().any(odd) || count_slashes(text) != slashes {
        return Err(Crooked);
    }
    let segments: Vec<&str> = text
        .split('/')
        .skip(1)
        .map(|segment| name(segment).trim())
        .collect();
    let (last, inner) = segments.split_last().ok_or(Crooked)?;
    let climbs = |name: &str| name == "." || name == "..";
    if inner.iter().any(|name| name.is_empty() || climbs(name)) || climbs(last) {
        return Err(Crooked);
    }
    Ok(())
}

/// A segment without what stands behind a semicolon: to some servers that is no part of its name.
pub(super) fn name(segment: &str) -> &str {
    segment.split(';').next().unwrap_or_default()
}

/// The text with its codes resolved once; `None` where one is broken, or what comes out is no text.
pub fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let digit = |byte: Option<&u8>| {
        char::from(*byte?)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if *byte == b'%' {
            plain.push(digit(bytes.get(at + 1))? * 16 + digit(bytes.get(at + 2))?);
            at += 3;
        } else {
            plain.push(*byte);
            at += 1;
        }
    }
    String::from_utf8(plain).ok().map(Cow::Owned)
}

/// The value of a pair of a query or a form as it is read: `+` is a space.
pub fn pair(pair: &str) -> Option<(String, String)> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let read = |text: &str| decoded(&text.replace('+', " ")).map(Cow::into_owned);
    Some((read(name)?, read(value)?))
}

/// The pairs of a query that pass, as they stand: all but those for which `drops` says so of name and value.
pub fn query(query: &str, drops: impl Fn(&str, &str) -> bool) -> String {
    let passes = |text: &&str| pair(text).is_none_or(|(name, value)| !drops(&name, &value));
    query.split('&').filter(passes).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_to_one_place_pass() {
        for path in [
            "/",
            "/v1/chat/completions",
            "/v1/models/",
            "/v1/models/org/name",
            "/v1beta/models/gemini-2.5-flash:generateContent",
            "/v1/files/file-1/content",
            "/a%20b",
            "/v1/models/%E6%A8%A1",
            "/100%25",
            "/v1/..hidden",
            "/v1/a..b/c.",
            "/v1/@x",
            "/v1/x;y=1",
        ] {
            assert_eq!(judge(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn paths_that_somebody_could_read_otherwise_do_not() {
        for path in [
            "",
            "v1",
            "//",
            "//evil.example/v1",
            "/http://evil.example/",
            "/v1//chat",
            "/.",
            "/..",
            "/v1/../admin",
            "/v1/./chat",
            "/v1/..",
            "/v1/%2e%2e/admin",
            "/v1/%2E%2e/admin",
            "/v1/.%2e/admin",
            "/v1/%252e%252e/admin",
            "/v1/%25252e%25252e/admin",
            "/v1/..;/admin",
            "/v1/..;a=b/admin",
            "/v1/;/admin",
            "/v1/%2e%2e%3b/admin",
            "/v1/..%20/admin",
            "/v1%2fadmin",
            "/v1%2Fadmin",
            "/v1%252fadmin",
            "/v1%5cadmin",
            "/v1\\admin",
            "/v1/..%5cadmin",
            "/v1/%c0%ae%c0%ae/admin",
            "/v1/%ff",
            "/v1/%",
            "/v1/%2",
            "/v1/%zz",
            "/v1/a%00b",
            "/v1/a%0d%0aHost:evil",
            "/v1/a%0a",
            "/v1/a%3fb=1",
            "/v1/a%253fb",
            "/v1/a%23b",
            "/v1/%EF%BC%8E%EF%BC%8E/admin",
            "/v1%EF%BC%8Fadmin",
            "/v1/\u{FF0E}\u{FF0E}/admin",
            "/v1%E2%88%95admin",
        ] {
            assert_eq!(judge(path), Err(Crooked), "{path}");
        }
        let deep = format!("/{}2e", "%25".to_owned() + &"25".repeat(20));
        assert_eq!(judge(&deep), Err(Crooked), "{deep}");
    }

    #[test]
    fn a_query_passes_as_it_stands_but_for_what_is_dropped() {
        let drops = |name: &str, value: &str| name == "key" || value == "se cret";
        for (asked, expected) in [
            ("a=1&key=x&b=2", "a=1&b=2"),
            ("k%65y=x", ""),
            ("q=se+cret&r=%7B", "r=%7B"),
            ("a&b=&&c=%zz", "a&b=&&c=%zz"),
        ] {
            assert_eq!(query(asked, drops), expected);
        }
    }
}
