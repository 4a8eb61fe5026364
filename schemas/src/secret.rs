//! Text that must not be seen: prints as `***`, has no `Serialize`, and is wiped from memory when it goes.

use std::fmt;

use serde::Deserialize;
use zeroize::Zeroize;

/// A secret. Read it with [`Secret::reveal`], at the edge that needs it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret<T: Zeroize>(T);

impl<T: Zeroize> Secret<T> {
    /// Hides `value`.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself.
    pub const fn reveal(&self) -> &T {
        &self.0
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<T: Zeroize> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<T: Zeroize> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
