//! How much models take and say. The providers do not publish this in a form for programs: the rows are ours, from
//! their manuals.

/// `provider:model`, its window, and its longest answer, in tokens. Versions need no row of their own.
const ROWS: &[(&str, u64, u64)] = &[
    ("anthropic:claude-3-5-haiku", 200_000, 8_192),
    ("anthropic:claude-3-5-sonnet", 200_000, 8_192),
    ("anthropic:claude-3-7-sonnet", 200_000, 64_000),
    ("anthropic:claude-3-haiku", 200_000, 4_096),
    ("anthropic:claude-3-opus", 200_000, 4_096),
    ("anthropic:claude-3-sonnet", 200_000, 4_096),
    ("anthropic:claude-haiku-4-5", 200_000, 64_000),
    ("anthropic:claude-opus-4", 200_000, 32_000),
    ("anthropic:claude-opus-4-0", 200_000, 32_000),
    ("anthropic:claude-opus-4-1", 200_000, 32_000),
    ("anthropic:claude-opus-4-5", 200_000, 64_000),
    ("anthropic:claude-opus-4-6", 1_000_000, 128_000),
    ("anthropic:claude-sonnet-4", 200_000, 64_000),
    ("anthropic:claude-sonnet-4-0", 200_000, 64_000),
    ("anthropic:claude-sonnet-4-5", 200_000, 64_000),
    ("anthropic:claude-sonnet-4-6", 1_000_000, 64_000),
    ("deepseek:deepseek-chat", 128_000, 8_192),
    ("deepseek:deepseek-reasoner", 128_000, 64_000),
    ("google:gemini-1.5-flash", 1_048_576, 8_192),
    ("google:gemini-1.5-pro", 2_097_152, 8_192),
    ("google:gemini-2.0-flash", 1_048_576, 8_192),
    ("google:gemini-2.0-flash-lite", 1_048_576, 8_192),
    ("google:gemini-2.5-flash", 1_048_576, 65_536),
    ("google:gemini-2.5-flash-lite", 1_048_576, 65_536),
    ("google:gemini-2.5-pro", 1_048_576, 65_536),
    ("google:gemini-3-flash-preview", 1_048_576, 65_536),
    ("google:gemini-3-pro-preview", 1_048_576, 65_536),
    ("groq:llama-3.1-8b-instant", 131_072, 131_072),
    ("groq:llama-3.3-70b-versatile", 131_072, 32_768),
    ("groq:openai/gpt-oss-120b", 131_072, 65_536),
    ("openai:gpt-3.5-turbo", 16_385, 4_096),
    ("openai:gpt-4", 8_192, 8_192),
    ("openai:gpt-4-turbo", 128_000, 4_096),
    ("openai:gpt-4.1", 1_047_576, 32_768),
    ("openai:gpt-4.1-mini", 1_047_576, 32_768),
    ("openai:gpt-4.1-nano", 1_047_576, 32_768),
    ("openai:gpt-4o", 128_000, 16_384),
    ("openai:gpt-4o-2024-05-13", 128_000, 4_096),
    ("openai:gpt-4o-mini", 128_000, 16_384),
    ("openai:gpt-5", 400_000, 128_000),
    ("openai:gpt-5-chat-latest", 128_000, 16_384),
    ("openai:gpt-5-mini", 400_000, 128_000),
    ("openai:gpt-5-nano", 400_000, 128_000),
    ("openai:gpt-5-pro", 400_000, 272_000),
    ("openai:gpt-5.1", 400_000, 128_000),
    ("openai:gpt-5.2", 400_000, 128_000),
    ("openai:o1", 200_000, 100_000),
    ("openai:o1-mini", 128_000, 65_536),
    ("openai:o3", 200_000, 100_000),
    ("openai:o3-mini", 200_000, 100_000),
    ("openai:o4-mini", 200_000, 100_000),
];

/// The file: comments, then rows.
pub fn text() -> String {
    let head = "# What models take and say, in tokens: the window, and the longest answer. Written by `cargo run -p price-table`\n\
                # from the rows in `crates/price-table/src/windows.rs`, not by hand.\n";
    ROWS.iter().fold(head.to_owned(), |text, (name, window, answer)| text + &format!("{name} {window} {answer}\n"))
}

#[cfg(test)]
mod tests {
    use llm_do::model::name::ModelName;
    use llm_do::model::prices::Prices;
    use llm_do::model::windows::Window;

    use super::*;
    use crate::source::PriceSource;

    #[test]
    fn rows_are_in_order_and_of_models_that_have_a_price() {
        assert!(ROWS.is_sorted_by(|(one, ..), (other, ..)| one < other));
        let prices = Prices::default();
        for (name, window, longest_answer) in ROWS {
            let model = ModelName::parse(name).unwrap();
            assert!(prices.of(&model).is_some(), "{name}");
            assert!(longest_answer <= window && *longest_answer >= 4_096, "{name}");
            assert_eq!(Window::of(&model), Some(Window { window: *window, longest_answer: *longest_answer }), "{name}");
        }
    }

    /// `genai-prices`, which knows prices, also knows windows, if not exactly.
    #[test]
    fn no_window_is_smaller_than_others_say() {
        let source = PriceSource::read().unwrap();
        let mut compared = 0;
        for (name, window, _) in ROWS {
            let (provider, model) = name.split_once(':').unwrap();
            let theirs = source.providers.iter().find(|theirs| theirs.id == provider).unwrap();
            let known = theirs.models.iter().find(|known| known.id == model).and_then(|known| known.context_window);
            let Some(known) = known else { continue };
            assert!(*window >= known, "{name}: {window}, and they say {known}");
            compared += 1;
        }
        assert!(compared > 25, "{compared}");
    }
}
