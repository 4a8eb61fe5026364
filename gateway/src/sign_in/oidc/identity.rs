//! ID tokens, pure: who somebody is, as a provider signed it. The algorithms are the two that are named here, each with
//! keys of its own kind: what a token says of algorithms, keys or places of keys chooses among those and nothing else.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use schemas::account::Identity;
use schemas::account::email::Email;
use schemas::time::Timestamp;
use serde::Deserialize;

/// Longest token that is looked at, in bytes.
const TOKEN_BYTES_MAX: usize = 16 * 1_024;
/// Seconds by which the provider's clock and ours may differ.
const SKEW_SECONDS: i64 = 60;
/// Longest name that a provider may have for somebody, in bytes.
const SUBJECT_BYTES_MAX: usize = 255;
/// Keys of a provider that are looked at.
const KEYS_MAX: usize = 64;
/// Bytes of a coordinate of P-256.
const COORDINATE_BYTES: usize = 32;

/// The public keys of a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Keys(Vec<Key>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    id: Option<String>,
    material: Material,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Material {
    /// For RS256: modulus and exponent.
    Rsa(Vec<u8>, Vec<u8>),
    /// For ES256: the point, uncompressed.
    P256(Vec<u8>),
}

/// A key as providers write it.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default, rename = "use")]
    used_for: Option<String>,
    #[serde(default)]
    alg: Option<String>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    n: Option<String>,
    #[serde(default)]
    e: Option<String>,
    #[serde(default)]
    x: Option<String>,
    #[serde(default)]
    y: Option<String>,
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<serde_json::Value>,
}

impl Keys {
    /// Reads a set of keys; those of other kinds are passed over. `None` for what is no set.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let set: Jwks = serde_json::from_slice(text).ok()?;
        let jwks = set.keys.into_iter().take(KEYS_MAX);
        let jwks = jwks.filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        Some(Self(jwks.filter_map(Key::of).collect()))
    }
}

impl Key {
    fn of(jwk: Jwk) -> Option<Self> {
        let decoded = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?).ok();
        let is_for = |algorithm: &str| jwk.alg.as_deref().is_none_or(|own| own == algorithm);
        if jwk.used_for.as_deref().is_some_and(|used| used != "sig") {
            return None;
        }
        let material = match jwk.kty.as_str() {
            "RSA" if is_for("RS256") => Material::Rsa(decoded(jwk.n)?, decoded(jwk.e)?),
            "EC" if is_for("ES256") && jwk.crv.as_deref() == Some("P-256") => {
                let (x, y) = (decoded(jwk.x)?, decoded(jwk.y)?);
                if x.len() != COORDINATE_BYTES || y.len() != COORDINATE_BYTES {
                    return None;
                }
                Material::P256([&[4], &*x, &*y].concat())
            }
            _ => return None,
        };
        Some(Self {
            id: jwk.kid,
            material,
        })
    }

    fn signed(&self, algorithm: Algorithm, text: &[u8], signature: &[u8]) -> bool {
        match (&self.material, algorithm) {
            (Material::Rsa(n, e), Algorithm::Rs256) => {
                let key = RsaPublicKeyComponents {
                    n: n.as_slice(),
                    e: e.as_slice(),
                };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, text, signature).is_ok()
            }
            (Material::P256(point), Algorithm::Es256) => {
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
                key.verify(text, signature).is_ok()
            }
            _ => false,
        }
    }
}

/// What a token may be signed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Algorithm {
    #[serde(rename = "RS256")]
    Rs256,
    #[serde(rename = "ES256")]
    Es256,
}

#[derive(Deserialize)]
struct Header {
    alg: Algorithm,
    #[serde(default)]
    kid: Option<String>,
    /// What has to be understood, of which there is nothing.
    #[serde(default)]
    crit: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

/// Some providers write true as a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Flag {
    Bool(bool),
    Text(String),
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    #[serde(default)]
    azp: Option<String>,
    exp: i64,
    iat: i64,
    #[serde(default)]
    nbf: Option<i64>,
    #[serde(default)]
    nonce: Option<String>,
    #[serde(default)]
    email: Option<String>,
    #[serde(default)]
    email_verified: Option<Flag>,
}

/// What a token has to say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client: &'a str,
    pub(super) nonce: &'a str,
    pub(super) now: Timestamp,
}

/// Who somebody is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Person {
    pub(super) identity: Identity,
    /// The provider has seen that it is his.
    pub(super) email: Email,
}

/// Why a token is not good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It is none, or of another kind.
    Form,
    /// No key of this name is known; a newer set of keys may have it.
    UnknownKey,
    /// None of the provider's keys signed it.
    Signature,
    /// The provider, or for whom it is.
    Party,
    /// It is over, or not yet good.
    Time,
    /// It was asked for by another browser, or another time.
    Nonce,
    /// The provider does not say that the address of mail is his.
    Email,
}

impl Wrong {
    /// For logs.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Form => "form",
            Self::UnknownKey => "unknown key",
            Self::Signature => "signature",
            Self::Party => "issuer or audience",
            Self::Time => "time",
            Self::Nonce => "nonce",
            Self::Email => "email",
        }
    }
}

/// Reads an ID token.
pub(super) fn read(token: &str, keys: &Keys, expected: Expected<'_>) -> Result<Person, Wrong> {
    let claims = signed(token, keys)?;
    let Expected {
        issuer,
        client,
        nonce,
        now,
    } = expected;
    if claims.iss != issuer || !is_for(&claims, client) {
        return Err(Wrong::Party);
    }
    let now = now.micros().div_euclid(1_000_000);
    let begins = claims.nbf.unwrap_or(claims.iat).max(claims.iat);
    if claims.exp.saturating_add(SKEW_SECONDS) <= now || begins.saturating_sub(SKEW_SECONDS) > now {
        return Err(Wrong::Time);
    }
    if claims.nonce.as_deref() != Some(nonce) {
        return Err(Wrong::Nonce);
    }
    if claims.sub.is_empty() || claims.sub.len() > SUBJECT_BYTES_MAX {
        return Err(Wrong::Form);
    }
    let is_verified = match &claims.email_verified {
        Some(Flag::Bool(verified)) => *verified,
        Some(Flag::Text(text)) => text == "true",
        None => false,
    };
    let email = claims.email.as_deref().and_then(Email::parse);
    let email = email.filter(|_| is_verified).ok_or(Wrong::Email)?;
    Ok(Person {
        identity: Identity {
            issuer: claims.iss,
            subject: claims.sub,
        },
        email,
    })
}

/// For this client, and asked for by it: a token for several names the one that asked.
fn is_for(claims: &Claims, client: &str) -> bool {
    let asked_by = claims.azp.as_deref();
    match &claims.aud {
        Audience::One(audience) => audience == client && asked_by.is_none_or(|azp| azp == client),
        Audience::Many(all) => {
            let is_named = all.iter().any(|audience| audience == client);
            let is_alone = all.len() == 1 && asked_by.is_none();
            is_named && (is_alone || asked_by == Some(client))
        }
    }
}

/// What a token says that one of the keys signed.
fn signed(token: &str, keys: &Keys) -> Result<Claims, Wrong> {
    let decoded = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| Wrong::Form);
    if token.len() > TOKEN_BYTES_MAX {
        return Err(Wrong::Form);
    }
    let (text, signature) = token.rsplit_once('.').ok_or(Wrong::Form)?;
    let (header, claims) = text.split_once('.').ok_or(Wrong::Form)?;
    let header: Header = serde_json::from_slice(&decoded(header)?).map_err(|_| Wrong::Form)?;
    if header.crit.is_some() {
        return Err(Wrong::Form);
    }
    let signature = decoded(signature)?;
    let named = |key: &&Key| header.kid.is_none() || key.id == header.kid;
    let mut candidates = keys.0.iter().filter(named).peekable();
    if candidates.peek().is_none() {
        return Err(Wrong::UnknownKey);
    }
    if !candidates.any(|key| key.signed(header.alg, text.as_bytes(), &signature)) {
        return Err(Wrong::Signature);
    }
    serde_json::from_slice(&decoded(claims)?).map_err(|_| Wrong::Form)
}
