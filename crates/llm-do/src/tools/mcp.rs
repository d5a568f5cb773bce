//! Tools of MCP servers: programs or services that offer tools to any client that speaks their protocol.
//!
//! A server is foreign. Everything it says is bounded, its words are shown as its own, none of its hints loosens
//! anything, and each wait for it has an end. It is started when the first agent that uses it opens, once in a run, and
//! ended with the run.

pub(super) mod bounded;
mod client;
mod era;
mod http;
#[cfg_attr(not(feature = "front-end"), allow(dead_code, reason = "a person logs in where there is a front end"))]
pub(crate) mod oauth;
pub(super) mod protocol;
mod question;
pub(super) mod result;
mod rounds;
mod server;
mod toolset;
#[cfg_attr(not(feature = "front-end"), allow(dead_code, reason = "a server's side of it is a front end's"))]
pub mod wire;

pub(crate) use client::McpError;
pub(crate) use era::EraMemory;
pub(crate) use protocol::McpTool;
pub(crate) use server::{Server, ServerSpec};
pub(crate) use toolset::McpTools;
