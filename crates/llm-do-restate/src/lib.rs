//! Runs that outlive their machine: the same project on Restate, a durable engine that its users run themselves.
//!
//! The engine keeps the lines of a run's journal, in their order, and nothing of the loop above them: an attempt writes them into
//! a file of its own and goes on with that as `llm-do resume` does, and each new line counts when the engine has it. So whatever
//! holds for a run in a file holds here, and the engine's own replay sees one command after the other, whatever order steps
//! are taken in.
//!
//! - [`worker`]: serves projects to the engine; `attempt` speaks its protocol, `endpoint` its HTTP, `identity` knows who it is
//! - [`mirror`]: what an engine keeps, as a store of runs that any front end reads
//! - [`client`]: starts runs, and says something to them
//! - [`words`]: what is said to a run, signed by whoever has the engine key

mod attempt;
pub mod client;
mod endpoint;
pub mod identity;
pub mod mirror;
mod round;
pub mod words;
pub mod worker;
