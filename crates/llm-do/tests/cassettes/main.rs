//! Recorded provider traffic: what comes out must be what an independent parser understood, and what goes out must be
//! what the provider would have taken.
//!
//! The recordings are not part of the repository: they are looked for in the folders that `LLM_DO_CASSETTES` lists, else
//! beside the workspace. Any file of their format that is put there is played.

#![allow(clippy::unwrap_used, reason = "the whole target is a test, its helpers included")]

mod cassette;
mod expectation;
mod history;
mod offline;
mod played;
mod player;
mod replay;
mod request;
