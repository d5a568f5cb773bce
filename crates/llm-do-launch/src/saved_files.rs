//! Pictures and other files that replies and results brought: written down beside the run, or where the user wants them.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use llm_do::escape::visible;
use llm_do::files::{FileAccess, create_path};
use llm_do::messages::ReplyPart;
use llm_do::{Content, Message};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// More are not written for one turn, and no larger ones together.
const MOST_FILES: usize = 100;
const MOST_BYTES: usize = 256 * 1024 * 1024;
/// What people can tell apart, and what no two files of a run share by chance.
const DIGITS: usize = 12;

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SavedFile {
    pub path: PathBuf,
    pub media_type: String,
    pub bytes: usize,
    /// The tool that gave it; `image_generation` for pictures of a provider.
    pub tool: String,
}

/// What came of the files of one turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnFiles {
    pub saved: Vec<SavedFile>,
    /// Why some were not, each a line for people.
    pub notes: Vec<String>,
}

/// A file in a conversation.
#[derive(Debug, PartialEq)]
struct FoundFile {
    tool: String,
    media_type: String,
    data: Vec<u8>,
}

/// Writes the files that these messages brought into a directory, which is made. Each is called after what it holds, so a run that goes
/// on writes none twice, and none over another. What cannot be written is said.
pub fn save(messages: &[Message], directory: &Path) -> TurnFiles {
    let (mut saved, mut notes, mut names, mut bytes) = (Vec::new(), Vec::new(), BTreeSet::new(), 0);
    for file in found(messages) {
        let name = name_of(&file);
        bytes += file.data.len();
        if saved.len() == MOST_FILES || bytes > MOST_BYTES {
            let most = format!("{MOST_FILES}, or {MOST_BYTES} bytes together");
            notes.push(format!("note: more files came than are written: {most}\n"));
            break;
        }
        if !names.insert(name.clone()) {
            continue;
        }
        let path = directory.join(name);
        match fs::create_dir_all(directory).and_then(|()| write(&path, &file.data)) {
            Ok(()) => {
                let FoundFile { tool, media_type, data } = file;
                saved.push(SavedFile { path, media_type, bytes: data.len(), tool });
            }
            Err(error) => {
                let path = path.display().to_string();
                notes.push(format!("warning: a file that came could not be written: {}: {error}\n", visible(&path)));
            }
        }
    }
    TurnFiles { saved, notes }
}

/// What has the name has the content: it was written before.
fn write(path: &Path, data: &[u8]) -> std::io::Result<()> {
    match create_path(path, data, FileAccess::Usual) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn name_of(file: &FoundFile) -> String {
    let digest = Sha256::digest(&file.data).iter().take(DIGITS / 2).fold(String::new(), |mut hex, byte| {
        hex.push_str(&format!("{byte:02x}"));
        hex
    });
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let tool: String = file.tool.chars().filter(is_plain).take(64).collect();
    let ending: String = file.media_type.rsplit('/').next().unwrap_or_default().chars().take_while(is_plain).collect();
    let ending = match ending.as_str() {
        "" => "bin",
        "jpeg" => "jpg",
        "svg" => "svg",
        "plain" => "txt",
        ending => ending,
    };
    format!("{tool}-{digest}.{ending}")
}

fn found(messages: &[Message]) -> Vec<FoundFile> {
    let mut files = Vec::new();
    for message in messages {
        match message {
            Message::User(_) => {}
            Message::Assistant(reply) => files.extend(reply.parts.iter().filter_map(of_reply)),
            Message::Tool(results) => {
                for result in &results.parts {
                    for part in result.outcome.iter().flatten() {
                        if let Content::Attachment(file) = part {
                            let (tool, media_type) = (result.tool.clone(), file.media_type.clone());
                            files.push(FoundFile { tool, media_type, data: file.data.to_vec() });
                        }
                    }
                }
            }
        }
    }
    files
}

/// A picture that the provider made.
fn of_reply(part: &ReplyPart) -> Option<FoundFile> {
    const PICTURES: &str = "image_generation";
    let ReplyPart::ServerTool(part) = part else { return None };
    let (text, media_type) = match part.tool.as_str() {
        PICTURES => (part.output.as_ref()?.to::<String>().ok()?, None),
        // A part of Gemini's replies, which goes back to it as it came.
        "inlineData" => {
            let part: serde_json::Value = part.private.as_ref()?.to().ok()?;
            let text = |name: &str| part["inlineData"][name].as_str().map(str::to_owned);
            (text("data")?, text("mimeType"))
        }
        _ => return None,
    };
    let data = STANDARD.decode(text).ok().filter(|data| !data.is_empty())?;
    let media_type = media_type.unwrap_or_else(|| kind_of(&data).to_owned());
    Some(FoundFile { tool: PICTURES.to_owned(), media_type, data })
}

/// Which sort of picture it is, as its first bytes say.
fn kind_of(data: &[u8]) -> &'static str {
    match data {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use llm_do::RawJson;
    use llm_do::messages::{Attachment, Reply, ToolResult};

    use super::*;

    fn messages() -> Vec<Message> {
        let picture = |data: &[u8]| {
            let data = Arc::from(data);
            Content::Attachment(Attachment { name: "a".into(), path: None, media_type: "image/png".into(), data })
        };
        let result =
            |tool: &str, content: Vec<Content>| ToolResult { id: "1".into(), tool: tool.into(), outcome: Ok(content) };
        let results = vec![
            result("draw", vec![Content::text("here"), picture(b"one"), picture(b"two"), picture(b"one")]),
            result("../up", vec![picture(b"three")]),
            ToolResult { id: "2".into(), tool: "draw".into(), outcome: Err("it failed".into()) },
        ];
        let part = |tool: &str, output: Option<&str>, private: Option<&str>| {
            let mut part = serde_json::json!({"type": "server_tool", "tool": tool});
            for (name, text) in [("output", output), ("private", private)] {
                if let Some(text) = text {
                    part[name] = serde_json::from_str(text).unwrap();
                }
            }
            let text = part.to_string();
            RawJson::parse(&text).unwrap().to::<ReplyPart>().unwrap()
        };
        let parts = vec![
            part("image_generation", Some(r#""iVBORw==""#), None),
            part("inlineData", None, Some(r#"{"inlineData":{"mimeType":"image/jpeg","data":"/9j/"}}"#)),
            part("image_generation", Some(r#""no base64!""#), None),
            part("web_search", Some(r#""iVBORw==""#), None),
        ];
        let reply = Reply { parts, ..Reply::answer(&"acme:rocket", "") };
        vec![Message::user("draw"), Message::tool_results(results), Message::Assistant(reply)]
    }

    #[test]
    fn files_are_written_once_under_names_of_their_content() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("new/files");
        let TurnFiles { saved, notes } = save(&messages(), &place);
        assert_eq!(notes, [""; 0]);
        let shown: Vec<String> = saved
            .iter()
            .map(|file| {
                let name = file.path.file_name().unwrap().to_str().unwrap();
                format!("{name} {} {} {}", file.media_type, file.bytes, file.tool)
            })
            .collect();
        assert_eq!(
            shown,
            [
                "draw-7692c3ad3540.png image/png 3 draw",
                "draw-3fc4ccfe7458.png image/png 3 draw",
                "up-8b5b9db0c13d.png image/png 5 ../up",
                "image_generation-0f4636c78f65.png image/png 4 image_generation",
                "image_generation-6e568e1f67fb.jpg image/jpeg 3 image_generation",
            ]
        );
        assert_eq!(fs::read(&saved[0].path).unwrap(), b"one");
        assert_eq!(save(&messages(), &place).saved, saved, "a run that goes on writes the same again");
        assert_eq!(fs::read_dir(&place).unwrap().count(), 5);
        let closed = directory.path().join("closed");
        fs::write(&closed, "a file").unwrap();
        let TurnFiles { saved, notes } = save(&messages(), &closed);
        assert_eq!(saved, []);
        assert!(notes[0].starts_with("warning: a file that came could not be written: "), "{notes:?}");
    }
}
