//! What the library looks like from outside. The tests inside of `llm-do` see its internals; here the guide
//! (`docs/embedding.md`) and the examples are compiled, and the guide is run, by a crate that has only what every program has:
//! `cargo test -p embedding`.

/// What the guide shows is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct EmbeddingGuide;
