//! The one thing that the program itself writes into `config.toml`: which models are asked where nothing else says it.

use std::path::Path;

use llm_do::ModelName;
use llm_do::files::{self, FileAccess};
use serde::Deserialize;

use crate::config::Config;
use crate::error::LaunchError;

/// Only what is changed, and where it stands.
#[derive(Deserialize)]
struct ModelSetting {
    model: Option<toml::Spanned<toml::Value>>,
}

/// Writes the models, which are asked in turn, into the file, which is made if it is not there. Everything else in it stays as it is.
pub fn set_models(path: &Path, models: &[ModelName]) -> Result<(), LaunchError> {
    // A file with a mistake is not written to: what is meant by it is not known.
    Config::load(Some(path))?;
    let failed = |error: &dyn std::fmt::Display| LaunchError::usage(format!("{}: {error}", path.display()));
    // Through a link, as those have it who keep their settings elsewhere.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let before = match std::fs::read_to_string(&target) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(&error)),
    };
    let after = with_models(&before, models).map_err(|error| failed(&error))?;
    if let Some(directory) = target.parent() {
        std::fs::create_dir_all(directory).map_err(|error| failed(&error))?;
    }
    files::replace_path(&target, after.as_bytes(), FileAccess::Usual).map_err(|error| failed(&error))
}

fn with_models(text: &str, models: &[ModelName]) -> Result<String, toml::de::Error> {
    // A text of JSON without control characters is one of TOML.
    let quoted = |model: &ModelName| serde_json::Value::from(model.to_string()).to_string();
    let quoted: Vec<String> = models.iter().map(quoted).collect();
    let value = if let [only] = quoted.as_slice() { only.clone() } else { format!("[{}]", quoted.join(", ")) };
    let setting: ModelSetting = toml::from_str(text)?;
    Ok(match setting.model {
        Some(old) => format!("{}{value}{}", &text[..old.span().start], &text[old.span().end..]),
        // Before all tables, of which it would be a key otherwise.
        None => format!("model = {value}\n{text}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_written_and_all_else_stays() {
        let cases = [
            ("", "model = \"a:b\"\n"),
            ("# mine\n[http]\nretries = 2\n", "model = \"a:b\"\n# mine\n[http]\nretries = 2\n"),
            ("# m\nmodel='x:y' # why\n[runs]\nkeep = true\n", "# m\nmodel=\"a:b\" # why\n[runs]\nkeep = true\n"),
            ("model = [\n  'x:y', # first\n  'z:z',\n]\n", "model = \"a:b\"\n"),
        ];
        for (before, after) in cases {
            let written = with_models(before, &[ModelName::parse("a:b").unwrap()]).unwrap();
            assert_eq!(written, after);
            assert!(toml::from_str::<toml::Table>(&written).is_ok());
        }
        let several = ["a:b", "c:d"].map(|text| ModelName::parse(text).unwrap());
        assert_eq!(with_models("model = 'x:y'\n", &several).unwrap(), "model = [\"a:b\", \"c:d\"]\n");
    }
}
