//! The floor: what any Rust program costs before it does something.

fn main() {}
