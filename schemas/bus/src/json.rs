//! Writes facts as compact JSON, byte for byte as `serde_json` does and in less than half its time: names of members
//! are copied as they are, and text is searched eight bytes at a time for what must be escaped. The spool writes two
//! records per request with it.

use serde::Serialize;
use serde::ser::{self, Error as _};

type Error = serde_json::Error;

/// A byte of 1 in each place of a word.
const ONES: u64 = u64::MAX / 255;
/// The top bit of each byte of a word.
const TOPS: u64 = ONES << 7;

/// Appends `value`. Keys of maps must be strings. After an error `out` may end in a part of the value.
pub(crate) fn write<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> Result<(), Error> {
    value.serialize(Writer { out })
}

/// Appends a string with its quotes.
fn text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = special(rest) {
        let (before, after) = rest.split_at(at);
        out.extend_from_slice(before);
        if let Some((&byte, after)) = after.split_first() {
            escape(out, byte);
            rest = after;
        }
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// The first byte that must be escaped.
fn special(text: &[u8]) -> Option<usize> {
    let (words, rest) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let controls = word.wrapping_sub(ONES * 0x20) & !word & TOPS;
        let found =
            controls | zeros(word ^ (ONES * u64::from(b'"'))) | zeros(word ^ (ONES * u64::from(b'\\')));
        if found != 0 {
            return Some(index * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let found = rest
        .iter()
        .position(|&byte| byte < 0x20 || matches!(byte, b'"' | b'\\'))?;
    Some(words.len() * 8 + found)
}

/// The top bit of each byte that is zero; exact up to the lowest such byte, which is all that is used.
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & TOPS
}

fn escape(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' => b'"',
        b'\\' => b'\\',
        0x08 => b'b',
        0x0C => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            let digit = |value: u8| {
                if value < 10 {
                    b'0' + value
                } else {
                    b'a' + value - 10
                }
            };
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// Appends the digits of a number.
pub(crate) fn number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    for place in digits.iter_mut().rev() {
        *place = b'0' + u8::try_from(value % 10).unwrap_or(0);
        start -= 1;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(start..).unwrap_or_default());
}

fn signed(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    number(out, value.unsigned_abs());
}

/// Writes one value.
struct Writer<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> Writer<'o> {
    /// Opens a list or an object, in an object named after its variant where there is one.
    fn open(self, variant: Option<&'static str>, [open, close]: [u8; 2]) -> Compound<'o> {
        if let Some(name) = variant {
            self.out.push(b'{');
            text(self.out, name);
            self.out.push(b':');
        }
        self.out.push(open);
        Compound {
            out: self.out,
            first: true,
            close,
            nested: variant.is_some(),
        }
    }
}

const LIST: [u8; 2] = *b"[]";
const OBJECT: [u8; 2] = *b"{}";

/// Numbers of these types are written as a wider one.
macro_rules! widened {
    ($($method:ident: $type:ty => $write:ident),*) => {$(
        fn $method(self, value: $type) -> Result<(), Error> {
            $write(self.out, value.into());
            Ok(())
        }
    )*};
}

/// Numbers that no fact has so far: written by `serde_json`.
macro_rules! rare {
    ($($method:ident: $type:ty),*) => {$(
        fn $method(self, value: $type) -> Result<(), Error> {
            serde_json::to_writer(self.out, &value)
        }
    )*};
}

impl<'o> ser::Serializer for Writer<'o> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Compound<'o>;
    type SerializeTuple = Compound<'o>;
    type SerializeTupleStruct = Compound<'o>;
    type SerializeTupleVariant = Compound<'o>;
    type SerializeMap = Compound<'o>;
    type SerializeStruct = Compound<'o>;
    type SerializeStructVariant = Compound<'o>;

    widened! {
        serialize_u8: u8 => number, serialize_u16: u16 => number, serialize_u32: u32 => number,
        serialize_u64: u64 => number, serialize_i8: i8 => signed, serialize_i16: i16 => signed,
        serialize_i32: i32 => signed, serialize_i64: i64 => signed
    }
    rare! {
        serialize_u128: u128, serialize_i128: i128, serialize_f32: f32, serialize_f64: f64, serialize_char: char,
        serialize_bytes: &[u8]
    }

    fn serialize_bool(self, value: bool) -> Result<(), Error> {
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn serialize_str(self, value: &str) -> Result<(), Error> {
        text(self.out, value);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.out.extend_from_slice(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), Error> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        let mut object = self.open(None, OBJECT);
        object.member(variant, value)?;
        object.close();
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Compound<'o>, Error> {
        Ok(self.open(None, LIST))
    }

    fn serialize_tuple(self, _: usize) -> Result<Compound<'o>, Error> {
        Ok(self.open(None, LIST))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Compound<'o>, Error> {
        Ok(self.open(None, LIST))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Compound<'o>, Error> {
        Ok(self.open(Some(variant), LIST))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Compound<'o>, Error> {
        Ok(self.open(None, OBJECT))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Compound<'o>, Error> {
        Ok(self.open(None, OBJECT))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Compound<'o>, Error> {
        Ok(self.open(Some(variant), OBJECT))
    }
}

/// A list or an object that is being written.
struct Compound<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
    close: u8,
    /// It is the only member of an object.
    nested: bool,
}

impl Compound<'_> {
    fn next(&mut self) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
    }

    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.next();
        write(self.out, value)
    }

    /// A member whose name is that of a field: there is nothing in it to escape.
    fn member<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        debug_assert!(special(name.as_bytes()).is_none(), "the name of a field is plain");
        self.next();
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        write(self.out, value)
    }

    fn close(self) {
        self.out.push(self.close);
        if self.nested {
            self.out.push(b'}');
        }
    }
}

/// Lists differ in the names of their methods only.
macro_rules! list {
    ($($trait:ident: $method:ident),*) => {$(
        impl ser::$trait for Compound<'_> {
            type Ok = ();
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.item(value)
            }

            fn end(self) -> Result<(), Error> {
                self.close();
                Ok(())
            }
        }
    )*};
}
list!(
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field
);

/// So do objects with named fields.
macro_rules! object {
    ($($trait:ident),*) => {$(
        impl ser::$trait for Compound<'_> {
            type Ok = ();
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
                self.member(name, value)
            }

            fn end(self) -> Result<(), Error> {
                self.close();
                Ok(())
            }
        }
    )*};
}
object!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Compound<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.next();
        let start = self.out.len();
        write(self.out, key)?;
        if self.out.get(start) == Some(&b'"') {
            Ok(())
        } else {
            Err(Error::custom("key must be a string"))
        }
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.out.push(b':');
        write(self.out, value)
    }

    fn end(self) -> Result<(), Error> {
        self.close();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
