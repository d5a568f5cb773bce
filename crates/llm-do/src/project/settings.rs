//! The keys of the user's configuration, as a table like those of projects: its mistakes are told in the same words, and
//! editors have its schema. A front end reads the values itself; what it does with them is its own affair.

use std::path::PathBuf;
use std::sync::Arc;

use super::limit::OnLimit;
use super::worker::MODELS;
use crate::syntax::claim::Bearing::Neutral;
use crate::syntax::diagnostic::{Diagnostics, Report, Sources};
use crate::syntax::table::Repeats::{Allowed, Refused};
use crate::syntax::table::Shape::{
    AnyOf, AnyText, Bool, Integer, List, Map, Name, Number, Object, OneOf, Text, Variable,
};
use crate::syntax::table::{FormatKey, Reading, Shape, Table, optional, required};
use crate::syntax::toml_tree::parse_toml;
use crate::syntax::tree;

const SECONDS: Shape = Number { min: 0.0, min_included: false, max: 1e9 };
const DOLLARS: Shape = Number { min: 0.0, min_included: true, max: 1e9 };
const COMMAND: Shape = List { of: &Text, least: 1, repeats: Allowed };

const fn key(name: &'static str, shape: Shape, doc: &'static str) -> FormatKey {
    optional(name, shape, Neutral, doc)
}

const fn needed(name: &'static str, shape: Shape, doc: &'static str) -> FormatKey {
    required(name, shape, Neutral, doc)
}

/// The keys of the user's configuration.
pub(super) const SETTINGS: Table = Table {
    what: "the configuration",
    keys: &[
        key("$schema", AnyText, "where editors find the schema of this file"),
        key("model", MODELS, "the model of agents whose file names none, or several that are asked in turn"),
        key("providers", Map { of: &Object(&PROVIDER) }, "endpoints that speak a known protocol, by name"),
        key("prices", Map { of: &Object(&PRICE) }, "US dollars per million tokens, by `provider:model`"),
        key("budget", List { of: &Object(&BUDGET), least: 0, repeats: Allowed }, "what runs may spend together"),
        key("http", Object(&HTTP), "connections to providers"),
        key("runs", Object(&RUNS), "how what is kept of runs is kept"),
        key("cache", Object(&CACHE), "how replies are kept that count again"),
        key("notify", Object(&NOTIFY), "whoever is told of questions that wait"),
        key("fence", Object(&FENCE), "what keeps commands in"),
        key("shell", Object(&SHELL), "how commands of shells are found"),
        key("terminal", Object(&TERMINAL), "how answers look at a terminal"),
        key("mcp", Object(&MCP), "what authorization servers of MCP servers are told"),
    ],
};

const PROVIDER: Table = Table {
    what: "a provider",
    keys: &[
        needed(
            "kind",
            OneOf(&["anthropic", "openai", "openai-chat", "google", "google-vertex"]),
            "the protocol that it speaks",
        ),
        needed("base_url", AnyText, "its address"),
        key("api_key_env", Variable, "the variable that holds the key"),
        key("api_key_cmd", COMMAND, "a program that prints the key"),
    ],
};

const PRICE: Table = Table {
    what: "a price",
    keys: &[
        needed("input", DOLLARS, "of what is sent"),
        needed("output", DOLLARS, "of what is answered"),
        key("cache_read", DOLLARS, "of what is read from a cache; else that of input"),
        key("cache_write", DOLLARS, "of what is written to a cache; else that of input"),
    ],
};

const BUDGET: Table = Table {
    what: "a budget",
    keys: &[
        needed("name", Name, "what it is called"),
        needed("usd", Number { min: 0.0, min_included: false, max: 1e6 }, "how much may be spent in a period"),
        needed("per", OneOf(&["day", "week", "month"]), "how long a period is"),
        key("project", Text, "the directory of the project whose runs count; all runs without it"),
        key("warn_at", Number { min: 0.0, min_included: false, max: 1.0 }, "from this share on a run says so"),
        key("on_limit", OneOf(OnLimit::WORDS), "what happens where it is used up"),
    ],
};

const HTTP: Table = Table {
    what: "`http`",
    keys: &[
        key("retries", Integer { min: 0 }, "how often a request is sent again"),
        key("first_byte_seconds", SECONDS, "how long an answer may take to begin"),
        key("slow_first_byte_seconds", SECONDS, "the same of models that think first"),
        key("content_seconds", SECONDS, "how long an answer may be without content"),
        key("idle_seconds", SECONDS, "how long an answer may pause"),
        key("proxy", Text, "the address of a proxy"),
        key("ca_file", Text, "certificates that are trusted besides those of the system"),
    ],
};

const RUNS: Table = Table {
    what: "`runs`",
    keys: &[
        key("keep", Bool, "whether runs are kept"),
        key("durable", Bool, "whether each step is on the disk before the next one"),
        key("days", Integer { min: 0 }, "so many days after its end a run is removed"),
        key("megabytes", Integer { min: 0 }, "how much all runs may take"),
        key("key_file", Text, "a file with the key that machines share"),
    ],
};

const CACHE: Table = Table {
    what: "`cache`",
    keys: &[key("megabytes", Integer { min: 0 }, "how much the replies may take that count again")],
};

const MCP: Table = Table {
    what: "`mcp`",
    keys: &[key("client_metadata_url", Text, "where metadata of this program lie, which some take as its name")],
};

const NOTIFY: Table = Table {
    what: "`notify`",
    keys: &[
        key("command", COMMAND, "a program that reads what waits on its stdin"),
        key("url", Text, "where it is sent"),
        key("headers", Map { of: &AnyOf(&[AnyText, Object(&FROM_ENV)]) }, "sent with it"),
        key("content", Bool, "whether it says what is asked, or only that something is"),
    ],
};

const FROM_ENV: Table = Table { what: "a header", keys: &[needed("from_env", Variable, "the variable that has it")] };

const FENCE: Table = Table {
    what: "`fence`",
    keys: &[key("accept", OneOf(&["full", "thin"]), "with which fence a rule that allows is enough")],
};

const SHELL: Table = Table {
    what: "`shell`",
    keys: &[key(
        "directories",
        List { of: &Text, least: 0, repeats: Refused },
        "where programs are found by name, besides the directories of the system",
    )],
};

const TERMINAL: Table = Table {
    what: "`terminal`",
    keys: &[
        key(
            "markdown",
            OneOf(&["styled", "plain"]),
            "whether the marks of an answer become style, or its source is shown",
        ),
        key("keys", OneOf(&["emacs", "vi"]), "how lines are edited at the prompt of a chat"),
        key("thinking", Bool, "whether what models think is shown at a terminal, dim"),
    ],
};

/// Every mistake of a configuration, each at its place; `None` if its keys and values have none.
pub fn settings_mistakes(path: PathBuf, text: &str) -> Option<Report> {
    let (mut sources, mut problems) = (Sources::default(), Diagnostics::default());
    let file = sources.add(path, text.to_owned());
    if let Some(node) = parse_toml(tree::Text::whole(file, text), &mut problems) {
        SETTINGS.check(&node, Reading::TOML, &mut problems);
    }
    problems.has_errors().then(|| Report::new(Arc::new(sources), problems))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::diagnostic::Colour;

    #[test]
    fn mistakes_have_places_and_near_names_and_no_words_of_a_library() {
        let cases = [
            ("modle = 'a:b'", "config.toml:1:1", "unknown key `modle` in the configuration", "did you mean `model`?"),
            ("[http]\nretry = 1", "config.toml:2:1", "unknown key `retry` in `http`", "did you mean `retries`?"),
            (
                "[providers.a]\nkind = 'openai'",
                "config.toml:1:1",
                "`base_url` is missing in a provider",
                "write `base_url = ",
            ),
            (
                "[providers.a]\nkind = 'opnai'\nbase_url = 'x'",
                "config.toml:2:8",
                "expected one of `anthropic`, `openai`,",
                "did you mean `openai`?",
            ),
            ("runs = true", "config.toml:1:8", "expected a table, found `true`", "`runs = { keep = true }`"),
            ("[runs]\ndays = '30'", "config.toml:2:8", "found the text `30`", "write `30`, without quotes"),
            ("model = ", "config.toml:1:9", "not valid TOML: ", ""),
            (
                "[[budget]]\nname = 'a'\nusd = 1\nper = 'year'",
                "config.toml:4:7",
                "expected one of `day`, `week`, `month`",
                "values: day, month, week",
            ),
        ];
        for (text, place, fact, hint) in cases {
            let told = settings_mistakes("config.toml".into(), text).expect(text).render(Colour::Plain);
            for words in [place, fact, hint] {
                assert!(told.contains(words), "{text}: {words}\n{told}");
            }
            for rust in ["unknown field", "unknown variant", "missing field", "invalid type", "TOML parse error"] {
                assert!(!told.contains(rust), "{told}");
            }
        }
        assert!(settings_mistakes("config.toml".into(), "\"$schema\" = 'x'\nmodel = 'a:b'").is_none());
    }
}
