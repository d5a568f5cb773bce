//! Where the parts of pictures stand: pure, from what is shown to numbers. The page, `--svg` and the file for offline reading draw
//! the same.

pub mod graph;
pub mod timeline;
