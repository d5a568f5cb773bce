//! Development only: tests that need more than Rust and `python3`. `.ci/install` gets what they need into `target/parts`, and
//! `LLM_DO_PARTS=all cargo test -p parts` runs them; without the variable each says that it was left out.
