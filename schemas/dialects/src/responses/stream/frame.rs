//! One event as it is written: its name, its type, its number, and what else it says.

use serde::Serialize;

/// Appends the beginning of an event, up to its number.
pub(in crate::responses) fn begin(kind: &str, sequence_number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\ndata: {\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"sequence_number\":");
    out.extend_from_slice(sequence_number.to_string().as_bytes());
}

/// Appends the members of an object, of which there is at least one, to the event.
pub(super) fn members(members: &impl Serialize, out: &mut Vec<u8>) {
    let start = out.len();
    // Text and numbers always serialize.
    let _ = serde_json::to_writer(&mut *out, members);
    if let Some(brace) = out.get_mut(start) {
        *brace = b',';
    }
    out.pop();
}

/// Appends the end of an event.
pub(in crate::responses) fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"}\n\n");
}
