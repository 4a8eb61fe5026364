//! How far the arguments of a call have come: whether they are an object, and whether it is whole.

/// Reads arguments as they come, byte by byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Scan {
    /// Nothing but space so far.
    #[default]
    Fresh,
    /// Within an object.
    Within {
        /// Brackets that are open.
        depth: usize,
        /// Within a string.
        quoted: bool,
        /// The last byte was a backslash in a string.
        escaped: bool,
    },
    /// The object is whole: nothing that may follow means anything.
    Whole,
    /// It is something else.
    Foreign,
}

impl Scan {
    /// Reads on.
    pub(crate) fn read(&mut self, piece: &str) {
        for byte in piece.bytes() {
            *self = self.after(byte);
            if matches!(self, Self::Whole | Self::Foreign) {
                return;
            }
        }
    }

    const fn after(self, byte: u8) -> Self {
        match self {
            Self::Fresh if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') => Self::Fresh,
            Self::Fresh if byte == b'{' => Self::Within {
                depth: 1,
                quoted: false,
                escaped: false,
            },
            Self::Fresh => Self::Foreign,
            Self::Within {
                depth,
                quoted: true,
                escaped,
            } => Self::Within {
                depth,
                quoted: escaped || byte != b'"',
                escaped: !escaped && byte == b'\\',
            },
            Self::Within { depth, .. } => match byte {
                b'}' | b']' if depth <= 1 => Self::Whole,
                b'}' | b']' => Self::within(depth - 1, false),
                b'{' | b'[' => Self::within(depth.saturating_add(1), false),
                b'"' => Self::within(depth, true),
                _ => Self::within(depth, false),
            },
            Self::Whole | Self::Foreign => self,
        }
    }

    const fn within(depth: usize, quoted: bool) -> Self {
        Self::Within {
            depth,
            quoted,
            escaped: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(pieces: &[&str]) -> Scan {
        let mut scan = Scan::default();
        for piece in pieces {
            scan.read(piece);
        }
        scan
    }

    #[test]
    fn an_object_is_whole_when_its_last_bracket_closes() {
        assert_eq!(scan(&["{}"]), Scan::Whole);
        assert_eq!(
            scan(&[" \n{\"a", "\":[1,{\"b\":\"}\\\"", "}\"}]", "}"]),
            Scan::Whole
        );
        assert!(matches!(scan(&["{\"a\":\"}"]), Scan::Within { quoted: true, .. }));
        assert!(matches!(scan(&["{\"a\":[}"]), Scan::Within { depth: 1, .. }));
        assert_eq!(scan(&["", " "]), Scan::Fresh);
        assert_eq!(scan(&["true"]), Scan::Foreign);
        assert_eq!(scan(&["[", "{}"]), Scan::Foreign);
    }
}
