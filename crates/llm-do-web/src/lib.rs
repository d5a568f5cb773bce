//! The page, and HTTP for programs: runs are seen, questions answered and work started from a browser or from any program that
//! speaks HTTP. A front end like the others: it comes through the hall, and has nothing of its own but a server.

mod api;
mod begin;
mod error;
mod export;
pub mod guard;
mod house;
pub mod layout;
mod own_runs;
mod page;
mod record_cache;
mod server;
mod stream;
mod svg;
pub mod told_call;
mod v1;

pub use export::html as run_html;
pub use server::{WebPlan, WebServer};

use llm_do::Program;
use llm_do::records::{JournalContents, calls};

/// The call graph of a program, as a picture.
pub fn program_svg(program: &Program) -> String {
    svg::graph(&layout::graph::PlacedGraph::of(&api::projects::call_graph(program)))
}

/// What a run did and when, as a picture.
pub fn run_svg(contents: &JournalContents) -> String {
    svg::timeline(&layout::timeline::Timeline::of(&told_call::timed(contents, &calls(contents))))
}
