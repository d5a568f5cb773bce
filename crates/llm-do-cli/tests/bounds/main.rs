//! What others send is bounded, whoever they are: schemas that unfold without end, answers of a thousand calls, words
//! that deceive, descriptors and links that were left for us. And whatever goes on, signals are heard.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../serve/client.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod client;
#[path = "../support/session.rs"]
mod session;
#[path = "../support/mod.rs"]
mod support;

mod calls;
mod places;
mod printed;
mod schemas;
mod shortage;
mod signals;
mod unread;

use support::Sandbox;

/// A project of one worker file, which has these keys, and a script.
fn sandbox(keys: &str, script: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    let worker = format!("---\nname: main\n{keys}\n---\nYou are main.\n");
    sandbox.file("main.worker", &worker).file("script.yaml", script);
    sandbox
}

const SCRIPTED: [&str; 4] = ["main.worker", "hi", "-m", "scripted:script.yaml"];
