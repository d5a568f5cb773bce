//! Writes `crates/llm-do/src/model/prices/table.txt`: what the models of our providers cost; and `model/windows.txt`:
//! how much they take and say.
//!
//! The prices are those of the crate `genai-prices`, whose data file lies in its package. To take newer ones:
//! `cargo update -p genai-prices`, set [`SOURCE_DATE`], `cargo run -p price-table`, and look at the difference.

mod source;
mod table;
mod windows;

use std::error::Error;
use std::path::PathBuf;

use source::PriceSource;

/// When the locked version of `genai-prices` was published; the prices of that day are taken.
const SOURCE_DATE: &str = "2026-10-30";

fn main() -> Result<(), Box<dyn Error>> {
    std::fs::write(path("prices/table.txt"), table::text(&PriceSource::read()?, SOURCE_DATE))?;
    std::fs::write(path("windows.txt"), windows::text())?;
    Ok(())
}

/// The path of a file that the library includes.
fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../llm-do/src/model").join(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_tables_are_what_would_be_written() {
        let prices = table::text(&PriceSource::read().unwrap(), SOURCE_DATE);
        for (file, written) in [("prices/table.txt", prices), ("windows.txt", windows::text())] {
            let committed = std::fs::read_to_string(path(file)).unwrap();
            let differs = committed.lines().zip(written.lines()).find(|(committed, written)| committed != written);
            assert_eq!(differs, None, "`cargo run -p price-table` writes {file} anew");
            assert_eq!(committed.len(), written.len());
        }
    }
}
