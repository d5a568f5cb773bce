//! Files that people write, as text with places: YAML and JSON as trees, key tables that check them, and located
//! mistakes. Pure.

pub(crate) mod claim;
pub mod diagnostic;
pub mod names;
pub mod table;
pub(crate) mod toml_tree;
pub mod tree;
mod yaml_mistake;
