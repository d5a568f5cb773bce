//! Runs that are kept: where their files are, which there are, what was answered and what they cost.
//!
//! Files and locks carry everything: there is no service, and any number of processes may use the store at once. What lies
//! in it may have been put there by others or be half of what was written, so whatever is read is bounded, is a regular
//! file, and counts only if it can be understood.

pub mod answers;
pub mod budget;
pub mod bundle;
pub mod cache;
pub mod costs;
pub mod desk;
mod files;
pub mod index;
pub mod items;
pub mod layout;
pub mod period;
#[cfg(test)]
mod race;
pub mod retention;
pub mod run;
pub mod summary;
