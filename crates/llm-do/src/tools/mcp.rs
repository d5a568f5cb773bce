//! Tools of MCP servers: programs or services that offer tools to any client that speaks their protocol.
//!
//! A server is foreign. Everything it says is bounded, its words are shown as its own, none of its hints loosens
//! anything, and each wait for it has an end. It is started when the first agent that uses it opens, once in a run, and
//! ended with the run.

pub(super) mod bounded;
mod client;
mod http;
pub(super) mod protocol;
pub(super) mod result;
mod server;
mod toolset;

pub(crate) use protocol::McpTool;
pub(crate) use server::{Server, ServerSpec};
pub(crate) use toolset::McpTools;
