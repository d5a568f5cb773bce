//! The lowest possible cost: what any Rust program costs before it does something.

fn main() {}
