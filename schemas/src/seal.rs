//! Secrets that whoever takes them in cannot read: sealed to a public key, opened by the routers that hold the private
//! one. The construction is HPKE's (RFC 9180), base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256,
//! `ChaCha20Poly1305`.
//!
//! A secret is sealed for a purpose ([`Context`]). Whoever may write the catalogue could copy what is sealed to another
//! record, or lead its endpoint elsewhere: it does not open there.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::kem::{Kem, X25519HkdfSha256};
use hpke::rand_core::{TryCryptoRng, TryRng};
use hpke::{Deserializable, OpModeR, OpModeS, Serializable};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use zeroize::{Zeroize as _, Zeroizing};

use crate::catalog::Endpoint;
use crate::id::{EndpointId, TenantId};
use crate::secret::Secret;

/// Bytes of a key, private or public.
pub const KEY_BYTES: usize = 32;
/// Longest secret that can be sealed, in bytes: the key file of a service account is a tenth of it.
pub const SECRET_BYTES_MAX: usize = 32 * 1024;
/// Random bytes that sealing takes.
pub const SEED_BYTES: usize = 32;

/// What of a sealed secret says how it was sealed.
const VERSION: u8 = 1;
/// Bytes of a public key's fingerprint.
const FINGERPRINT_BYTES: usize = 8;
/// Bytes of the key that is made for one secret.
const ENCAPSULATED_BYTES: usize = 32;
/// Bytes that show that nothing was changed.
const TAG_BYTES: usize = 16;
/// Bytes before what is sealed.
const HEAD_BYTES: usize = 1 + FINGERPRINT_BYTES + ENCAPSULATED_BYTES;
/// Sets what is sealed here apart from anything else that anybody seals to the same key.
const PURPOSE: &[u8] = b"waybill credential v1";

type X25519 = X25519HkdfSha256;
type Point = <X25519 as Kem>::PublicKey;
type Scalar = <X25519 as Kem>::PrivateKey;
type Encapsulated = <X25519 as Kem>::EncappedKey;

/// Why text is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key is 32 bytes in base64")]
pub struct NoKey;

/// Why nothing was sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The secret is empty or longer than [`SECRET_BYTES_MAX`].
    #[error("a secret has 1 to {SECRET_BYTES_MAX} bytes")]
    Size,
    /// Nobody can open what is sealed to this key.
    #[error("the public key is none that can be sealed to")]
    Key,
}

/// Why a sealed secret does not open. No text of it is in the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It was sealed to another public key.
    #[error("the secret was sealed for another master key")]
    OtherKey,
    /// It was changed, or sealed for another tenant, another endpoint or other addresses.
    #[error("the secret was not sealed for this endpoint and its addresses")]
    OtherContext,
    /// It is no sealed secret, or one of a later version.
    #[error("the sealed secret is not understood")]
    Malformed,
}

/// The key that secrets are sealed to; public. As text it is base64url without padding.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey([u8; KEY_BYTES]);

impl PublicKey {
    /// The key of these bytes.
    pub const fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    fn fingerprint(&self) -> [u8; FINGERPRINT_BYTES] {
        let digest = Sha256::digest(self.0);
        let mut fingerprint = [0; FINGERPRINT_BYTES];
        fingerprint
            .iter_mut()
            .zip(digest)
            .for_each(|(to, from)| *to = from);
        fingerprint
    }
}

impl FromStr for PublicKey {
    type Err = NoKey;

    fn from_str(text: &str) -> Result<Self, NoKey> {
        let bytes = key_bytes(text).ok_or(NoKey)?;
        Ok(Self(*bytes))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// The key that opens what was sealed to its [`PublicKey`]. Its memory is wiped when it goes; it prints as nothing.
#[derive(Clone)]
pub struct PrivateKey {
    scalar: Scalar,
    public: PublicKey,
}

impl PrivateKey {
    /// The key that a master key stands for.
    pub fn of_master(master: &Secret<[u8; KEY_BYTES]>) -> Self {
        let (scalar, point) = X25519::derive_keypair(master.reveal());
        let public = PublicKey(point.to_bytes().into());
        Self { scalar, public }
    }

    /// What to seal to.
    pub const fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The secret, where it was sealed to this key and for this context.
    pub fn open(&self, context: &Context, sealed: &Sealed) -> Result<Secret<Vec<u8>>, OpenError> {
        let bytes = sealed.bytes().ok_or(OpenError::Malformed)?;
        let (head, text) = bytes.split_at_checked(HEAD_BYTES).ok_or(OpenError::Malformed)?;
        let (version, head) = head.split_first().ok_or(OpenError::Malformed)?;
        let (fingerprint, encapsulated) = head
            .split_at_checked(FINGERPRINT_BYTES)
            .ok_or(OpenError::Malformed)?;
        if *version != VERSION {
            return Err(OpenError::Malformed);
        }
        if fingerprint != self.public.fingerprint() {
            return Err(OpenError::OtherKey);
        }
        let encapsulated = Encapsulated::from_bytes(encapsulated).map_err(|_| OpenError::Malformed)?;
        let opened = hpke::single_shot_open::<ChaCha20Poly1305, HkdfSha256, X25519>(
            &OpModeR::Base,
            &self.scalar,
            &encapsulated,
            PURPOSE,
            text,
            &context.0,
        );
        opened.map(Secret::new).map_err(|_| OpenError::OtherContext)
    }
}

/// What a secret is sealed for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context([u8; 32]);

impl Context {
    /// For an endpoint of a tenant as long as its backends are at these addresses, in any order.
    pub fn new<'u>(
        tenant: &TenantId,
        endpoint: &EndpointId,
        base_urls: impl IntoIterator<Item = &'u str>,
    ) -> Self {
        let mut urls: Vec<&str> = base_urls.into_iter().collect();
        urls.sort_unstable();
        urls.dedup();
        let mut digest = Sha256::new();
        for part in [tenant.as_str(), endpoint.as_str()].iter().chain(&urls) {
            digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            digest.update(part.as_bytes());
        }
        Self(digest.finalize().into())
    }

    /// For an endpoint as its record stands.
    pub fn of(endpoint: &Endpoint) -> Self {
        let urls = endpoint.backends.iter().map(|backend| backend.base_url.as_str());
        Self::new(&endpoint.tenant, &endpoint.id, urls)
    }
}

/// A sealed secret, as it stands in the catalogue: base64url.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sealed(String);

impl Sealed {
    /// A name for it that tells nothing: what operators hear of it by.
    pub fn name(&self) -> String {
        let digest = Sha256::digest(self.0.as_bytes());
        let digits = digest.iter().take(6).map(|byte| format!("{byte:02x}"));
        format!("sealed:{}", digits.collect::<String>())
    }

    /// True when it was sealed to this key.
    pub fn is_for(&self, key: &PublicKey) -> bool {
        self.bytes()
            .is_some_and(|bytes| bytes.get(1..=FINGERPRINT_BYTES) == Some(&key.fingerprint()))
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        let longest = HEAD_BYTES + SECRET_BYTES_MAX + TAG_BYTES;
        if self.0.len() > longest.div_ceil(3) * 4 {
            return None;
        }
        URL_SAFE_NO_PAD.decode(&self.0).ok()
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl Endpoint {
    /// True when it wants no credential: it refers to none, and none is sealed for it.
    pub const fn is_keyless(&self) -> bool {
        self.credentials.is_empty() && self.sealed.is_empty()
    }
}

/// Seals a secret of 1 to [`SECRET_BYTES_MAX`] bytes to a key. `seed` is random and used for nothing else.
pub fn seal(
    key: &PublicKey,
    context: &Context,
    secret: &Secret<Vec<u8>>,
    seed: [u8; SEED_BYTES],
) -> Result<Sealed, SealError> {
    let secret = secret.reveal();
    if secret.is_empty() || secret.len() > SECRET_BYTES_MAX {
        return Err(SealError::Size);
    }
    let point = Point::from_bytes(&key.0).map_err(|_| SealError::Key)?;
    let (encapsulated, text) = hpke::single_shot_seal_with_rng::<ChaCha20Poly1305, HkdfSha256, X25519>(
        &OpModeS::Base,
        &point,
        PURPOSE,
        secret,
        &context.0,
        &mut Drawn::from(seed),
    )
    .map_err(|_| SealError::Key)?;
    let mut bytes = Vec::with_capacity(HEAD_BYTES + text.len());
    bytes.push(VERSION);
    bytes.extend(key.fingerprint());
    bytes.extend(encapsulated.to_bytes());
    bytes.extend(text);
    Ok(Sealed(URL_SAFE_NO_PAD.encode(bytes)))
}

/// A master key as text: 32 bytes in base64, of either alphabet, with padding or without.
pub fn master_key(text: &Secret<String>) -> Result<Secret<[u8; KEY_BYTES]>, NoKey> {
    let bytes = key_bytes(text.reveal()).ok_or(NoKey)?;
    Ok(Secret::new(*bytes))
}

fn key_bytes(text: &str) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
    const ALPHABETS: [GeneralPurpose; 4] = [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD];
    let text = text.trim();
    ALPHABETS.iter().find_map(|alphabet| {
        let bytes = Zeroizing::new(alphabet.decode(text).ok()?);
        Some(Zeroizing::new(bytes.as_slice().try_into().ok()?))
    })
}

/// Randomness that was drawn by whoever seals: this module draws none. As many bytes as are asked for come of it, and
/// they are told by nobody who does not have the seed.
struct Drawn {
    seed: [u8; SEED_BYTES],
    blocks: u64,
}

impl From<[u8; SEED_BYTES]> for Drawn {
    fn from(seed: [u8; SEED_BYTES]) -> Self {
        Self { seed, blocks: 0 }
    }
}

impl Drop for Drawn {
    fn drop(&mut self) {
        self.seed.zeroize();
    }
}

impl TryRng for Drawn {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), Infallible> {
        for piece in to.chunks_mut(KEY_BYTES) {
            let mut digest = Sha256::new();
            digest.update(self.seed);
            digest.update(self.blocks.to_be_bytes());
            self.blocks = self.blocks.wrapping_add(1);
            let block = digest.finalize();
            piece.iter_mut().zip(block).for_each(|(to, from)| *to = from);
        }
        Ok(())
    }
}

impl TryCryptoRng for Drawn {}

#[cfg(test)]
mod tests;
