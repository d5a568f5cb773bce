//! Prompts as executables: agents are text files, code and agents call each other by name in one call tree, and
//! dangerous calls stop at a gate.
//!
//! The modules in reading order; each one uses only those above it:
//!
//! - [`message`]: the conversation as values, and the one decision of the agent loop
//! - [`event`]: what happened, told to whoever listens
//! - [`escape`]: foreign text made harmless for display
//! - [`syntax`]: files that people write, as trees with places, and located mistakes
//! - [`http`]: the only way out to the network
//! - [`model`]: the neural side, one request → one reply
//! - [`tools`]: the symbolic side, what a call may do and who has to agree
//! - [`project`]: files → a linked program
//! - [`runtime`]: the imperative shell, which opens calls and drives their turns

pub mod escape;
pub mod event;
pub mod http;
pub mod message;
pub mod model;
pub mod project;
pub mod runtime;
pub mod syntax;
pub mod tools;

use std::{future::Future, pin::Pin};

/// The one boxed-future alias; only object-safe seams use it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
