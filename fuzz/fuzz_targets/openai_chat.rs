#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| llm_do::model::fuzz::openai_chat(bytes));
