//! The page in a real browser, and `/v1` by the client that programs use for it. `LLM_DO_PARTS=chromium` and `openai`.

mod bars;
mod browser;
mod clients;
mod desk;
mod hostile;
mod newsroom;
mod runs;
mod views;
