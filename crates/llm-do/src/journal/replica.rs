//! A second place of a journal's lines, such as an engine that outlives the machine.

use std::fmt::Debug;
use std::io;

/// Keeps the lines of one journal somewhere else. A line counts when it is in its file and here.
pub trait Replica: Debug + Send + Sync {
    /// Keeps whole lines, which follow all that it was given before. They are durable when this returns. It is called on the
    /// thread that writes, one call after the other, so it may wait; after an error it is not called again.
    fn keep(&self, lines: &[u8]) -> io::Result<()>;
}
