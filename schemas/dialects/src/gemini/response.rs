//! Whole answers of Gemini's generateContent, to the superset: a stream of one piece.

use super::stream::Decoder;
use crate::superset::answer::{Answer, Broken};
use crate::superset::event::{Event, Sink};
use crate::superset::request::{Call, Part, Proof};

/// Reads an upstream's answer.
pub fn decode(body: &[u8]) -> Result<Answer, Broken> {
    let mut decoder = Decoder::default();
    let mut gathered = Gathered::default();
    decoder.piece(body, &mut gathered)?;
    match decoder.finish(&mut gathered) {
        Ok(()) => Ok(gathered.0),
        // A whole answer need not say why it ended.
        Err(Broken::Cut) if !gathered.0.parts.is_empty() => {
            decoder.end(&mut gathered);
            Ok(gathered.0)
        }
        Err(Broken::Cut) => Err(Broken::Empty),
        Err(broken) => Err(broken),
    }
}

/// An answer as it is put together.
#[derive(Default)]
struct Gathered(Answer);

impl Sink for Gathered {
    fn event(&mut self, event: Event<'_>) {
        let parts = &mut self.0.parts;
        match event {
            Event::Begin => {}
            Event::Thinking(piece) => match parts.last_mut() {
                Some(Part::Thinking { text, proof: None }) => text.push_str(piece),
                _ => parts.push(Part::Thinking {
                    text: piece.to_owned(),
                    proof: None,
                }),
            },
            Event::Proof {
                maker,
                text,
                redacted,
            } => {
                let made = Some(Proof {
                    maker,
                    text: text.to_owned(),
                    redacted,
                });
                match parts.last_mut() {
                    Some(Part::Thinking { proof, .. }) if proof.is_none() => *proof = made,
                    _ => parts.push(Part::Thinking {
                        text: String::new(),
                        proof: made,
                    }),
                }
            }
            Event::Text(piece) => match parts.last_mut() {
                Some(Part::Text { text, .. }) => text.push_str(piece),
                _ => parts.push(Part::Text {
                    text: piece.to_owned(),
                    cache: None,
                }),
            },
            Event::Refusal(text) => parts.push(Part::Refusal(text.to_owned())),
            Event::Call {
                id,
                name,
                namespace,
                custom,
                ..
            } => parts.push(Part::ToolCall(Call {
                id: id.to_owned(),
                name: name.to_owned(),
                namespace: namespace.map(ToOwned::to_owned),
                arguments: String::new(),
                custom,
                proof: None,
            })),
            Event::Arguments { piece, .. } => {
                // A call's arguments come whole, right behind it.
                if let Some(Part::ToolCall(call)) = parts.last_mut() {
                    call.arguments.push_str(piece);
                }
            }
            Event::CallProof { maker, text, .. } => {
                if let Some(Part::ToolCall(call)) = parts.last_mut() {
                    call.proof = Some(Proof {
                        maker,
                        text: text.to_owned(),
                        redacted: false,
                    });
                }
            }
            Event::Usage(usage) => self.0.usage = Some(usage),
            Event::Finish { finish, .. } => self.0.finish = finish,
        }
    }
}

#[cfg(test)]
mod tests;
