//! Pools of credentials: which one a call is made with, and what becomes of one that is refused.
