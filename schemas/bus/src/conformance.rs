//! What every adapter must do, one function per promise.
