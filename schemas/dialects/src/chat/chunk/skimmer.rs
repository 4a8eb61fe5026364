//! Skims the chunks of one stream. Most differ from the one before in their text alone: when all around the text is
//! the same, byte for byte, and the text needs no escapes, the chunk says the same and is not parsed again.
//!
//! Guarantee: the result is that of [`skim`](super::skim), always.

use super::{Chunk, Error, read};

/// Skims chunk after chunk.
#[derive(Debug, Default)]
pub struct Skimmer {
    like: Option<Like>,
}

/// A chunk that was parsed, without its text.
#[derive(Debug, Default)]
struct Like {
    /// Up to the text, the opening quote included.
    before: Vec<u8>,
    /// From the closing quote on.
    after: Vec<u8>,
    /// What it said, the text's own bytes not counted.
    chunk: Chunk,
}

impl Skimmer {
    /// Reads the data of the next event, as [`skim`](super::skim) does.
    pub fn skim(&mut self, data: &[u8]) -> Result<Chunk, Error> {
        if let Some(chunk) = self.like.as_ref().and_then(|like| like.chunk(data)) {
            return Ok(chunk);
        }
        let (chunk, text) = read(data)?;
        let plain = chunk.usage.is_none() && chunk.error.is_none() && chunk.finish.is_none();
        let parts = text.and_then(|span| Some((span.len(), data.get(..span.start)?, data.get(span.end..)?)));
        if let Some((bytes, before, after)) = parts.filter(|_| plain) {
            let like = self.like.get_or_insert_default();
            like.learn(&chunk, before, after);
            like.chunk.output_bytes = chunk.output_bytes.saturating_sub(bytes);
        }
        Ok(chunk)
    }
}

impl Like {
    fn learn(&mut self, chunk: &Chunk, before: &[u8], after: &[u8]) {
        self.before.clear();
        self.before.extend_from_slice(before);
        self.after.clear();
        self.after.extend_from_slice(after);
        self.chunk.clone_from(chunk);
    }

    /// What `data` says, if it differs in the text alone and the text is not empty.
    fn chunk(&self, data: &[u8]) -> Option<Chunk> {
        let text = data.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        let plain = |byte: &u8| *byte >= 0x20 && !matches!(*byte, b'"' | b'\\');
        let model = self.chunk.model_span.as_ref();
        let model_stays = model.is_none_or(|span| span.end <= self.before.len());
        if text.is_empty() || !model_stays || !text.iter().all(plain) {
            return None;
        }
        std::str::from_utf8(text).ok()?;
        Some(Chunk {
            content: true,
            output_bytes: self.chunk.output_bytes.saturating_add(text.len()),
            ..self.chunk.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn said(result: Result<Chunk, Error>) -> Result<Chunk, String> {
        result.map_err(|error| error.to_string())
    }

    /// Chunks of a few shapes around a text, which may also break out of its string.
    fn chunk() -> impl Strategy<Value = Vec<u8>> {
        let text = prop_oneof![
            4 => "[a-z ]{0,6}".prop_map(String::into_bytes),
            1 => ".{0,4}".prop_map(String::into_bytes),
            1 => Just(br#"a\n\"b"#.to_vec()),
            1 => Just(br#"x","role":"y"#.to_vec()),
            1 => Just(br#"x"},"finish_reason":"stop","delta":{"a":"b"#.to_vec()),
            1 => Just(vec![0xFF]),
            1 => Just(vec![b'\n']),
        ];
        let frame = prop_oneof![
            6 => Just((r#"{"id":"1","model":"m","choices":[{"index":0,"delta":{"content":""#, r#""},"finish_reason":null}]}"#)),
            2 => Just((r#"{"choices":[{"index":0,"delta":{"content":""#, r#""}}],"model":"m"}"#)),
            1 => Just((r#"{"model":"m","choices":[{"delta":{"content":""#, r#""}}]}"#)),
            1 => Just((r#"{"model":"m","choices":[{"index":0,"delta":{"reasoning":"r","content":""#, r#""}}]}"#)),
            1 => Just((r#"{"model":"m","choices":[{"index":0,"delta":{"reasoning":""#, r#""}}]}"#)),
            1 => Just((r#"{"model":"m","choices":[{"index":0,"delta":{"content":""#, r#""},"finish_reason":"stop"}]}"#)),
            1 => Just((r#"{"model":"m","choices":[{"index":0,"delta":{"content":""#, r#"","content":"c"}}]}"#)),
            1 => Just((r#"{"model":"m","choices":[{"index":0,"delta":{"content":""#, r#"","content":["c"]}}]}"#)),
            1 => Just((r#"{"model":"m","choices":[{"index":0,"delta":{"content":""#, r#""}}],"usage":{"prompt_tokens":1}}"#)),
            1 => Just((r#"{"model":"m","choices":[{"index":0,"delta":{"content":""#, r#""}}],"error":{"message":"e"}}"#)),
        ];
        (frame, text)
            .prop_map(|((before, after), text)| [before.as_bytes(), &text, after.as_bytes()].concat())
    }

    proptest! {
        #[test]
        fn chunks_say_the_same_as_when_each_is_parsed(chunks in proptest::collection::vec(chunk(), 1..30)) {
            let mut skimmer = Skimmer::default();
            for data in chunks {
                prop_assert_eq!(said(skimmer.skim(&data)), said(super::super::skim(&data)));
            }
        }
    }

    #[test]
    fn a_chunk_like_the_last_is_recognized_and_one_with_escapes_is_not() {
        let data = |text: &str| {
            format!(r#"{{"model":"m","choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}"#)
        };
        let mut skimmer = Skimmer::default();
        skimmer.skim(data("first").as_bytes()).expect("a chunk");

        let like = skimmer.like.as_ref().expect("learned");

        assert_eq!(
            like.chunk(data("wörd").as_bytes())
                .map(|chunk| chunk.output_bytes),
            Some(5)
        );
        for other in ["", r"a\u0020b", "tab\there", r#"x","content":"y"#] {
            assert_eq!(like.chunk(data(other).as_bytes()), None, "{other}");
        }
    }
}
