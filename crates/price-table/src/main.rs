//! Writes `crates/llm-do/src/model/prices/table.txt`: what the models of our providers cost.
//!
//! The prices are those of the crate `genai-prices`, whose data file lies in its package. To take newer ones:
//! `cargo update -p genai-prices`, set [`SOURCE_DATE`], `cargo run -p price-table`, and look at the difference.

mod source;
mod table;

use std::error::Error;
use std::path::PathBuf;

use source::Source;

/// When the locked version of `genai-prices` was published; the prices of that day are taken.
const SOURCE_DATE: &str = "2026-10-30";

fn main() -> Result<(), Box<dyn Error>> {
    std::fs::write(table_path(), table::text(&Source::read()?, SOURCE_DATE))?;
    Ok(())
}

fn table_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../llm-do/src/model/prices/table.txt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_table_is_what_would_be_written() {
        let committed = std::fs::read_to_string(table_path()).unwrap();
        let written = table::text(&Source::read().unwrap(), SOURCE_DATE);
        let differs = committed.lines().zip(written.lines()).find(|(committed, written)| committed != written);
        assert_eq!(differs, None, "`cargo run -p price-table` writes it anew");
        assert_eq!(committed.len(), written.len());
    }
}
