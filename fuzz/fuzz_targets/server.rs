#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| llm_do::tools::fuzz::server(bytes));
