//! Where the node listens, and what it and its cluster are called.

use std::net::SocketAddr;

use schemas::id::NodeId;

use super::{Error, NAME_BYTES_MAX, Resolver};

impl Resolver<'_> {
    /// The address to bind, where one is given.
    pub(super) fn listen(&self) -> Result<Option<SocketAddr>, Error> {
        self.address(
            "listen",
            self.flags.listen.as_ref(),
            self.settings.listen.as_ref(),
        )
    }

    /// The second address, for management, where one is given.
    pub(super) fn admin_listen(&self) -> Result<Option<SocketAddr>, Error> {
        self.address(
            "admin_listen",
            self.flags.admin_listen.as_ref(),
            self.settings.admin_listen.as_ref(),
        )
    }

    pub(super) fn cluster(&self) -> Result<String, Error> {
        let named = self.name("cluster", self.settings.cluster.as_deref())?;
        Ok(named.unwrap_or("local").into())
    }

    pub(super) fn node_id(&self) -> Result<Option<NodeId>, Error> {
        let named = self.name("node_id", self.settings.node_id.as_deref())?;
        Ok(named.map(NodeId::from))
    }

    /// A name that can stand in the source of events.
    fn name<'s>(&self, path: &str, name: Option<&'s str>) -> Result<Option<&'s str>, Error> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        match name {
            Some(name) if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(plain) => {
                let message = format!("\"{}\" is not a name", name.escape_debug());
                let remedy = "use letters, digits, dots, hyphens and underscores, at most 63";
                Err(self.document.problem(path, message, remedy).into())
            }
            name => Ok(name),
        }
    }

    fn address(
        &self,
        path: &str,
        flag: Option<&String>,
        file: Option<&String>,
    ) -> Result<Option<SocketAddr>, Error> {
        let variable = format!("WAYBILL_{}", path.to_uppercase());
        let Some(text) = self.pick(flag, &variable, file) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| {
            let message = format!("\"{text}\" is not an address");
            let remedy = "write it as IP:PORT, such as 127.0.0.1:3333";
            let named = flag.map(|_| format!("--{}", path.replace('_', "-")));
            self.given((path, named.as_deref(), &variable), message, remedy)
        })
    }
}
