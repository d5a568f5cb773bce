//! The JSON Schemas of our own file formats, for editors.

use serde_json::Value;

use super::manifest::MANIFEST;
use super::settings::SETTINGS;
use super::worker::WORKER;
use crate::testing::case_file::TEST_FILE;

/// The JSON Schema of `project.json`.
pub fn of_project() -> Value {
    titled(MANIFEST.schema(), "llm-do project manifest")
}

/// The JSON Schema of a YAML worker file; front matter has the same keys without `instructions`.
pub fn of_worker() -> Value {
    titled(WORKER.schema(), "llm-do worker file")
}

/// The JSON Schema of a file with cases.
pub fn of_tests() -> Value {
    titled(TEST_FILE.schema(), "llm-do test file")
}

/// The JSON Schema of the user's configuration.
pub fn of_settings() -> Value {
    titled(SETTINGS.schema(), "llm-do configuration")
}

fn titled(mut schema: Value, title: &str) -> Value {
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = title.into();
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_schemas_are_schemas() {
        for schema in [of_project(), of_worker(), of_settings(), of_tests()] {
            jsonschema::validator_for(&schema).unwrap();
        }
    }
}
