//! Where a node's requests run: in its own router when it has one, else in one elsewhere. Decided at the start.

use std::sync::Arc;

use super::gateway::RemoteDispatcher;
use crate::dispatch::{Dispatch, Dispatcher, Session};

/// A dispatcher that was chosen at the start of a node.
#[derive(Clone)]
pub enum Choose {
    /// The router of this process: no hop, no copy.
    Local(Arc<dyn Dispatcher>),
    /// Routers elsewhere.
    Remote(RemoteDispatcher),
}

impl Dispatcher for Choose {
    fn dispatch(&self, dispatch: Dispatch) -> Box<dyn Session> {
        match self {
            Self::Local(local) => local.dispatch(dispatch),
            Self::Remote(remote) => remote.dispatch(dispatch),
        }
    }
}
