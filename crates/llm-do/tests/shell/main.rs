//! What the shell toolsets do to the world: every hostile command is tried for its effect, with the kernel sandbox
//! and without it; every honest one passes without a question.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod approval;
mod calls;
mod fence;
mod git;
mod honest;
mod hostile;
mod kept;
mod operands;
mod processes;
mod property;
mod rules;
mod world;
