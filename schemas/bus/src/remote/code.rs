//! The messages of dispatch as bytes: a version, a kind, and fields of fixed length; heads, offers and reports are
//! JSON behind a length. Reading checks every length and never panics; a version or kind that is not known is refused.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use schemas::command::Offer;
use schemas::frame::{Head, Report};
use schemas::pool::Part;
use serde::{Deserialize, Serialize};

const VERSION: u8 = 2;

const OFFER: u8 = 1;
const ACCEPTED: u8 = 2;
const BUSY: u8 = 3;
const UNKNOWN: u8 = 4;
const ORDERS: u8 = 5;
const BEAT: u8 = 6;
const NEED: u8 = 7;
const PIECE: u8 = 8;
const HEAD: u8 = 16;
const CHUNK: u8 = 17;
const TAIL: u8 = 18;
const END: u8 = 19;

const ORDER_BYTES: usize = 17;
const PLACE_BYTES: usize = 12;
const NEED_BYTES: usize = 9;
/// Bit of an order that asks for frames again.
const RESUME: u8 = 0x80;
/// Most orders in a message, and most places in a beat.
pub(super) const ORDERS_MAX: usize = 2_048;
/// Longest name of an inbox or a process, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// A message that cannot be read. It is dropped.
#[derive(Debug, thiserror::Error)]
pub(super) enum Malformed {
    /// It ends before its fields do, or goes on after them.
    #[error("the message has a wrong length")]
    Length,
    /// The name of a process is no word of a subject.
    #[error("a name has other characters than letters, digits, - and _")]
    Word,
    /// Another version of the protocol.
    #[error("version {0} is not known")]
    Version(u8),
    /// A kind of another version, or one that does not belong here.
    #[error("kind {0} is not expected")]
    Kind(u8),
    /// What is told of the catalogue is not about the offer's model.
    #[error("the part of the catalogue belongs to another offer")]
    Foreign,
    /// A field that must be text or JSON is not.
    #[error("a field cannot be read")]
    Field(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What a router says about a lane.
#[derive(Debug)]
pub(super) enum Reply {
    /// It holds a place; its process is named.
    Accepted(Box<str>),
    /// It has no place.
    Busy,
    /// It does not run this lane: the place has expired, or the request died with its task.
    Unknown,
    /// It wants more of the body.
    Need(Need),
    /// A part of the answer, with its number.
    Frame(u32, Piece),
}

/// What a router offered a request is given at once.
#[derive(Debug)]
pub(super) struct Offered {
    /// The offer.
    pub(super) offer: Offer,
    /// What it must know of the catalogue, as JSON; empty where it follows that itself.
    pub(super) part: Bytes,
    /// Bytes of the body.
    pub(super) body_bytes: usize,
    /// The body, or nothing of one that is fetched in pieces.
    pub(super) body: Bytes,
}

/// How much of a body a router may be sent: bytes from `from` up to `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    /// The first byte that has not arrived.
    pub(super) from: u32,
    /// The first byte that may not be sent yet.
    pub(super) until: u32,
    /// What was sent from `from` on has not arrived.
    pub(super) again: bool,
}

/// A piece of a body on its way to a router.
#[derive(Debug)]
pub(super) struct Sent {
    /// The gateway's inbox.
    pub(super) inbox: Box<str>,
    /// The lane.
    pub(super) lane: u64,
    /// Where in the body it begins.
    pub(super) offset: u32,
    /// The piece.
    pub(super) bytes: Bytes,
}

/// A part of an answer.
#[derive(Debug)]
pub(super) enum Piece {
    /// Its head.
    Head(Head),
    /// Bytes that may leave now.
    Chunk(Bytes),
    /// Bytes that belong before the end's own tail.
    Tail(Bytes),
    /// The end.
    End(Box<Last>, Bytes),
}

/// The JSON of an end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Last {
    /// What happened.
    pub(super) report: Report,
    /// The head of an answer that is one frame.
    pub(super) head: Option<Head>,
}

/// What a gateway wants of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// Run it; the first of these is the word to go.
    Run,
    /// The caller has left.
    Cancel,
    /// The gateway is at its drain limit.
    Interrupt,
    /// Another router runs it: forget it.
    Release,
}

/// The whole state of a lane as its gateway sees it. May be lost, doubled or overtaken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    /// The lane.
    pub(super) lane: u64,
    /// The first frame that has not arrived.
    pub(super) received: u32,
    /// The first frame that may not be sent yet.
    pub(super) granted: u32,
    /// What it wants.
    pub(super) wish: Wish,
    /// Frames from `received` on shall be sent again.
    pub(super) resume: bool,
}

/// How far a router is with a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The lane.
    pub(super) lane: u64,
    /// The number of its next frame.
    pub(super) next: u32,
}

fn begin(kind: u8, more: usize) -> BytesMut {
    let mut bytes = BytesMut::with_capacity(2 + more);
    bytes.put_u8(VERSION);
    bytes.put_u8(kind);
    bytes
}

/// A length that fits its field, by the limits of this protocol.
fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

fn json<T: Serialize>(value: &T) -> Result<Vec<u8>, Malformed> {
    serde_json::to_vec(value).map_err(|problem| Malformed::Field(problem.into()))
}

/// An offer with what the router must know beside it (as JSON, or nothing) and its body, or nothing of one that is
/// fetched in pieces.
pub(super) fn offer(offer: &Offer, part: &[u8], body: &[u8], is_inline: bool) -> Result<Bytes, Malformed> {
    let json = json(offer)?;
    let inline = if is_inline { body } else { &[] };
    let mut bytes = begin(OFFER, 12 + json.len() + part.len() + inline.len());
    bytes.put_u32(length(&json));
    bytes.put_slice(&json);
    bytes.put_u32(length(part));
    bytes.put_slice(part);
    bytes.put_u32(length(body));
    bytes.put_slice(inline);
    Ok(bytes.freeze())
}

/// What a router must know of the catalogue.
pub(super) fn part(part: &Part) -> Result<Bytes, Malformed> {
    Ok(json(part)?.into())
}

/// How much more of a body a router wants.
pub(super) fn need(need: Need) -> Bytes {
    let mut bytes = begin(NEED, NEED_BYTES);
    bytes.put_u32(need.from);
    bytes.put_u32(need.until);
    bytes.put_u8(need.again.into());
    bytes.freeze()
}

/// A piece of the body of a lane, from the gateway that listens at `inbox`.
pub(super) fn piece(inbox: &str, lane: u64, offset: u32, piece: &[u8]) -> Bytes {
    let mut bytes = begin(PIECE, 14 + inbox.len() + piece.len());
    bytes.put_u16(u16::try_from(inbox.len()).unwrap_or(u16::MAX));
    bytes.put_slice(inbox.as_bytes());
    bytes.put_u64(lane);
    bytes.put_u32(offset);
    bytes.put_slice(piece);
    bytes.freeze()
}

/// A router takes an offer.
pub(super) fn accepted(boot: &str) -> Bytes {
    let mut bytes = begin(ACCEPTED, boot.len());
    bytes.put_slice(boot.as_bytes());
    bytes.freeze()
}

/// A router does not take an offer.
pub(super) fn busy() -> Bytes {
    Bytes::from_static(&[VERSION, BUSY])
}

/// A router does not run a lane.
pub(super) fn unknown() -> Bytes {
    Bytes::from_static(&[VERSION, UNKNOWN])
}

/// A frame.
pub(super) fn frame(sequence: u32, piece: &Piece) -> Result<Bytes, Malformed> {
    let (kind, text, data) = match piece {
        Piece::Head(head) => (HEAD, json(head)?, &[][..]),
        Piece::Chunk(data) => (CHUNK, Vec::new(), &data[..]),
        Piece::Tail(data) => (TAIL, Vec::new(), &data[..]),
        Piece::End(last, data) => (END, json(last)?, &data[..]),
    };
    let mut bytes = begin(kind, 8 + text.len() + data.len());
    bytes.put_u32(sequence);
    if kind == END {
        bytes.put_u32(length(&text));
    }
    bytes.put_slice(&text);
    bytes.put_slice(data);
    Ok(bytes.freeze())
}

/// A frame of pieces that leave together.
pub(super) fn chunks(sequence: u32, pieces: &[Bytes]) -> Bytes {
    let mut bytes = begin(CHUNK, 4 + pieces.iter().map(Bytes::len).sum::<usize>());
    bytes.put_u32(sequence);
    for piece in pieces {
        bytes.put_slice(piece);
    }
    bytes.freeze()
}

/// Orders of the gateway that listens at `inbox`, at most [`ORDERS_MAX`].
pub(super) fn orders(inbox: &str, orders: &[Order]) -> Bytes {
    let mut bytes = begin(ORDERS, 2 + inbox.len() + orders.len() * ORDER_BYTES);
    bytes.put_u16(u16::try_from(inbox.len()).unwrap_or(u16::MAX));
    bytes.put_slice(inbox.as_bytes());
    for order in orders {
        bytes.put_u64(order.lane);
        bytes.put_u32(order.received);
        bytes.put_u32(order.granted);
        let resume = if order.resume { RESUME } else { 0 };
        bytes.put_u8(resume | order.wish.code());
    }
    bytes.freeze()
}

/// Places of a router, at most [`ORDERS_MAX`].
pub(super) fn beat(places: &[Place]) -> Bytes {
    let mut bytes = begin(BEAT, places.len() * PLACE_BYTES);
    for place in places {
        bytes.put_u64(place.lane);
        bytes.put_u32(place.next);
    }
    bytes.freeze()
}

impl Wish {
    const fn code(self) -> u8 {
        match self {
            Self::Run => 0,
            Self::Cancel => 1,
            Self::Interrupt => 2,
            Self::Release => 3,
        }
    }

    fn read(code: u8) -> Result<Self, Malformed> {
        match code {
            0 => Ok(Self::Run),
            1 => Ok(Self::Cancel),
            2 => Ok(Self::Interrupt),
            3 => Ok(Self::Release),
            other => Err(Malformed::Kind(other)),
        }
    }
}

impl From<bytes::TryGetError> for Malformed {
    fn from(_: bytes::TryGetError) -> Self {
        Self::Length
    }
}

/// Takes the version and the kind off a message.
fn kind(bytes: &mut Bytes) -> Result<u8, Malformed> {
    match bytes.try_get_u8()? {
        VERSION => Ok(bytes.try_get_u8()?),
        other => Err(Malformed::Version(other)),
    }
}

fn take(bytes: &mut Bytes, count: usize) -> Result<Bytes, Malformed> {
    if count > bytes.len() {
        return Err(Malformed::Length);
    }
    Ok(bytes.split_to(count))
}

/// Takes bytes behind their number.
fn take_counted(bytes: &mut Bytes) -> Result<Bytes, Malformed> {
    let count = usize::try_from(bytes.try_get_u32()?).map_err(|_| Malformed::Length)?;
    take(bytes, count)
}

/// Takes JSON behind its length.
fn take_json<T: for<'a> Deserialize<'a>>(bytes: &mut Bytes) -> Result<T, Malformed> {
    read_json(&take_counted(bytes)?)
}

fn read_json<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T, Malformed> {
    serde_json::from_slice(bytes).map_err(|problem| Malformed::Field(problem.into()))
}

/// The name of a process: one word of a subject.
fn word(bytes: &[u8]) -> Result<Box<str>, Malformed> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
    if !bytes.iter().all(is_word) {
        return Err(Malformed::Word);
    }
    name(bytes)
}

fn name(bytes: &[u8]) -> Result<Box<str>, Malformed> {
    if bytes.is_empty() || bytes.len() > NAME_BYTES_MAX {
        return Err(Malformed::Length);
    }
    let text = std::str::from_utf8(bytes).map_err(|problem| Malformed::Field(problem.into()))?;
    Ok(text.into())
}

/// Reads an offer and what comes with it.
pub(super) fn read_offer(mut bytes: Bytes) -> Result<Offered, Malformed> {
    match kind(&mut bytes)? {
        OFFER => {}
        other => return Err(Malformed::Kind(other)),
    }
    let offer = take_json(&mut bytes)?;
    let part = take_counted(&mut bytes)?;
    let body_bytes = usize::try_from(bytes.try_get_u32()?).map_err(|_| Malformed::Length)?;
    if !bytes.is_empty() && bytes.len() != body_bytes {
        return Err(Malformed::Length);
    }
    Ok(Offered {
        offer,
        part,
        body_bytes,
        body: bytes,
    })
}

/// Reads what a router must know of the catalogue.
pub(super) fn read_part(bytes: &[u8]) -> Result<Part, Malformed> {
    read_json(bytes)
}

/// Reads a piece of a body.
pub(super) fn read_piece(mut bytes: Bytes) -> Result<Sent, Malformed> {
    match kind(&mut bytes)? {
        PIECE => {}
        other => return Err(Malformed::Kind(other)),
    }
    let count = usize::from(bytes.try_get_u16()?);
    let inbox = name(&take(&mut bytes, count)?)?;
    let (lane, offset) = (bytes.try_get_u64()?, bytes.try_get_u32()?);
    Ok(Sent {
        inbox,
        lane,
        offset,
        bytes,
    })
}

/// Reads what a router says about a lane.
pub(super) fn read_reply(mut bytes: Bytes) -> Result<Reply, Malformed> {
    let kind = kind(&mut bytes)?;
    match kind {
        ACCEPTED => return Ok(Reply::Accepted(word(&bytes)?)),
        BUSY => return Ok(Reply::Busy),
        UNKNOWN => return Ok(Reply::Unknown),
        NEED => return read_need(bytes),
        HEAD | CHUNK | TAIL | END => {}
        other => return Err(Malformed::Kind(other)),
    }
    let sequence = bytes.try_get_u32()?;
    let piece = match kind {
        HEAD => Piece::Head(read_json(&bytes)?),
        CHUNK => Piece::Chunk(bytes),
        TAIL => Piece::Tail(bytes),
        _ => {
            let last = take_json(&mut bytes)?;
            Piece::End(Box::new(last), bytes)
        }
    };
    Ok(Reply::Frame(sequence, piece))
}

fn read_need(mut bytes: Bytes) -> Result<Reply, Malformed> {
    if bytes.len() != NEED_BYTES {
        return Err(Malformed::Length);
    }
    Ok(Reply::Need(Need {
        from: bytes.try_get_u32()?,
        until: bytes.try_get_u32()?,
        again: bytes.try_get_u8()? != 0,
    }))
}

/// Reads orders: the inbox of the gateway, and what it wants.
pub(super) fn read_orders(mut bytes: Bytes) -> Result<(Box<str>, Vec<Order>), Malformed> {
    match kind(&mut bytes)? {
        ORDERS => {}
        other => return Err(Malformed::Kind(other)),
    }
    let count = usize::from(bytes.try_get_u16()?);
    let inbox = name(&take(&mut bytes, count)?)?;
    let mut orders = Vec::with_capacity(entries(&bytes, ORDER_BYTES)?);
    while bytes.has_remaining() {
        let (lane, received) = (bytes.try_get_u64()?, bytes.try_get_u32()?);
        let (granted, flags) = (bytes.try_get_u32()?, bytes.try_get_u8()?);
        orders.push(Order {
            lane,
            received,
            granted,
            wish: Wish::read(flags & !RESUME)?,
            resume: flags & RESUME != 0,
        });
    }
    Ok((inbox, orders))
}

/// Reads a router's beat.
pub(super) fn read_beat(mut bytes: Bytes) -> Result<Vec<Place>, Malformed> {
    match kind(&mut bytes)? {
        BEAT => {}
        other => return Err(Malformed::Kind(other)),
    }
    let mut places = Vec::with_capacity(entries(&bytes, PLACE_BYTES)?);
    while bytes.has_remaining() {
        let (lane, next) = (bytes.try_get_u64()?, bytes.try_get_u32()?);
        places.push(Place { lane, next });
    }
    Ok(places)
}

/// How many entries of `size` bytes follow.
fn entries(bytes: &Bytes, size: usize) -> Result<usize, Malformed> {
    let count = bytes.len() / size;
    if !bytes.len().is_multiple_of(size) || count > ORDERS_MAX {
        return Err(Malformed::Length);
    }
    Ok(count)
}

#[cfg(test)]
mod tests;
