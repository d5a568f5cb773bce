//! What a call of a server's tool gave, as a model can read it: within bounds, each part as what it is. Pure.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::Value;

use super::bounded::BoundedList;
use super::protocol::in_short;
use crate::escape::visible_start;
use crate::message::{Content, RawJson};
use crate::tools::attachment;
use crate::tools::plane::LONGEST_RESULT;

/// More parts than an honest result has.
const MOST_PARTS: usize = 100;
/// Of all files of one result together: what providers take in a request.
const MOST_BYTES: usize = 20 * 1024 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct McpResult {
    #[serde(default)]
    content: BoundedList<RawJson, 10_000>,
    structured_content: Option<RawJson>,
    #[serde(default)]
    is_error: bool,
}

/// Every kind of part has some of these fields.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct McpResultPart {
    r#type: String,
    text: Option<String>,
    data: Option<String>,
    blob: Option<String>,
    mime_type: Option<String>,
    uri: Option<String>,
    name: Option<String>,
    description: Option<String>,
    resource: Option<RawJson>,
}

/// The content of a result; what the server says has failed is an error.
pub(crate) fn read(result: &RawJson) -> Result<Vec<Content>, String> {
    let said: McpResult =
        result.to().map_err(|error| format!("the server answered with something else: {}", in_short(&error)))?;
    let mut gathered = ContentCollector::default();
    for part in &said.content.0 {
        gathered.add(&part.to().unwrap_or_default());
    }
    let is_structured = said.structured_content.is_some();
    if let Some(structured) = said.structured_content.filter(|structured| !gathered.says(structured)) {
        gathered.text(structured.in_one_line().get());
    }
    let mut content = gathered.finish();
    // Code gets the value that the server meant.
    if let (true, [Content::Text { text }]) = (is_structured, content.as_mut_slice())
        && let Ok(value) = RawJson::parse(text)
    {
        content = vec![Content::value(&value)];
    }
    if said.is_error {
        let shown = Content::shown(&content);
        return Err(if shown.is_empty() { "the server says that it failed".to_owned() } else { shown });
    }
    Ok(content)
}

/// Parts so far, and how much room is left.
struct ContentCollector {
    content: Vec<Content>,
    characters: usize,
    bytes: usize,
    left_out: usize,
}

impl Default for ContentCollector {
    fn default() -> Self {
        Self { content: Vec::new(), characters: LONGEST_RESULT, bytes: MOST_BYTES, left_out: 0 }
    }
}

impl ContentCollector {
    fn add(&mut self, part: &McpResultPart) {
        if self.content.len() == MOST_PARTS {
            self.left_out += 1;
            return;
        }
        match (part.r#type.as_str(), part) {
            ("text", McpResultPart { text: Some(text), .. }) => self.text(text),
            ("image" | "audio", McpResultPart { data: Some(data), .. }) => self.file(part.r#type.as_str(), data, part),
            ("resource", McpResultPart { resource: Some(resource), .. }) => {
                self.resource(&resource.to().unwrap_or_default());
            }
            ("resource_link", McpResultPart { uri: Some(uri), .. }) => self.text(&link(uri, part)),
            (kind, _) => self.text(&format!("[a part of the kind `{}` cannot be shown]", visible_start(kind, 40))),
        }
    }

    fn text(&mut self, text: &str) {
        if self.characters == 0 {
            self.left_out += 1;
            return;
        }
        match text.char_indices().nth(self.characters) {
            // The first one may be of any length: results are cut where all tools' are.
            Some((end, _)) if self.characters < LONGEST_RESULT => {
                let more = text[end..].chars().count();
                self.content.push(Content::text(format!("{}\n[cut: {more} more characters]", &text[..end])));
                self.characters = 0;
            }
            _ => {
                self.characters = self.characters.saturating_sub(text.chars().count());
                self.content.push(Content::text(text));
            }
        }
    }

    fn resource(&mut self, part: &McpResultPart) {
        let uri = part.uri.as_deref().unwrap_or_default();
        match part {
            McpResultPart { text: Some(text), .. } => {
                self.text(&format!("<resource uri=\"{}\">\n{text}\n</resource>", visible_start(uri, 500)));
            }
            McpResultPart { blob: Some(blob), .. } => self.file("resource", blob, part),
            _ => self.text("[a resource without content]"),
        }
    }

    /// Adds a file. What it is shows in its content; what its server calls it is not believed.
    fn file(&mut self, kind: &str, data: &str, part: &McpResultPart) {
        let media_type = part.mime_type.as_deref().unwrap_or("unknown type");
        let called = format!("{kind} ({})", visible_start(media_type, 80));
        if data.len() / 4 * 3 > self.bytes {
            return self.text(&format!("[the {called} is left out: too large]"));
        }
        let Ok(bytes) = BASE64.decode(data) else {
            return self.text(&format!("[the {called} is left out: not base64]"));
        };
        let name = part.uri.as_deref().and_then(|uri| uri.rsplit('/').next()).filter(|name| !name.is_empty());
        let name = name.map_or_else(|| kind.to_owned(), |name| visible_start(name, 80).into_owned());
        let length = bytes.len();
        match attachment::of_bytes(Path::new(&name), bytes) {
            Ok(file) => {
                self.bytes -= length.min(self.bytes);
                self.content.push(Content::Attachment(file));
            }
            Err(_) => self.text(&format!("[the {called} of {length} bytes is left out: no model here reads it]")),
        }
    }

    /// Servers repeat structured results as text, for clients that do not know them.
    fn says(&self, structured: &RawJson) -> bool {
        if structured.get().len() > LONGEST_RESULT {
            return !self.content.is_empty();
        }
        let Ok(value) = structured.to::<Value>() else { return false };
        self.content.iter().any(|part| match part {
            Content::Text { text } => serde_json::from_str::<Value>(text).is_ok_and(|said| said == value),
            Content::Value { .. } | Content::Attachment(_) => false,
        })
    }

    fn finish(mut self) -> Vec<Content> {
        if self.left_out > 0 {
            self.content.push(Content::text(format!("[{} more parts are left out]", self.left_out)));
        }
        self.content
    }
}

fn link(uri: &str, part: &McpResultPart) -> String {
    let field = |value: &Option<String>| value.as_deref().map(|text| visible_start(text, 500).into_owned());
    let name = field(&part.name).unwrap_or_default();
    let more: Vec<String> = [field(&part.mime_type), field(&part.description)].into_iter().flatten().collect();
    let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join("; ")) };
    format!("[resource {name} at {}{more}]", visible_start(uri, 1_000))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PIXEL: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

    fn parts(result: &Value) -> Result<Vec<String>, String> {
        let shown = |part: &Content| match part {
            Content::Text { text } | Content::Value { json: text } => text.clone(),
            Content::Attachment(file) => format!("{} {} {}", file.name, file.media_type, file.data.len()),
        };
        read(&RawJson::of(result)).map(|content| content.iter().map(shown).collect())
    }

    #[test]
    fn parts_come_back_as_what_they_are() {
        let pixel = BASE64.encode(PIXEL);
        let cases = [
            (json!({"type": "text", "text": "hi"}), "hi"),
            (json!({"type": "image", "data": pixel, "mimeType": "image/jpeg"}), "image image/png 16"),
            (
                json!({"type": "image", "data": BASE64.encode("<svg/>"), "mimeType": "image/svg+xml"}),
                "image text/plain 6",
            ),
            (
                json!({"type": "image", "data": "%%", "mimeType": "image/png"}),
                "[the image (image/png) is left out: not base64]",
            ),
            (
                json!({"type": "audio", "data": BASE64.encode(b"RIFF\0\xff\0\0WAVE"), "mimeType": "audio/wav"}),
                "[the audio (audio/wav) of 12 bytes is left out: no model here reads it]",
            ),
            (
                json!({"type": "resource", "resource": {"uri": "file:///a\n", "text": "words"}}),
                "<resource uri=\"file:///a\\n\">\nwords\n</resource>",
            ),
            (json!({"type": "resource", "resource": {"uri": "x://y/a.png", "blob": pixel}}), "a.png image/png 16"),
            (
                json!({"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/plain"}),
                "[resource a at file:///a (text/plain)]",
            ),
            (json!({"type": "hologram\u{1b}"}), "[a part of the kind `hologram\\u{1b}` cannot be shown]"),
            (json!(7), "[a part of the kind `` cannot be shown]"),
        ];
        for (part, expected) in cases {
            assert_eq!(parts(&json!({"content": [part]})), Ok(vec![expected.to_owned()]));
        }
    }

    #[test]
    fn a_structured_result_is_said_once() {
        let structured = json!({"b": 1, "a": [2]});
        let as_text =
            json!({"content": [{"type": "text", "text": "{\"a\": [2], \"b\": 1}"}], "structuredContent": structured});
        assert_eq!(parts(&as_text), Ok(vec!["{\"a\": [2], \"b\": 1}".to_owned()]));
        let beside = json!({"content": [{"type": "text", "text": "done"}], "structuredContent": structured});
        assert_eq!(parts(&beside), Ok(vec!["done".to_owned(), structured.to_string()]));
        assert_eq!(parts(&json!({"structuredContent": structured})), Ok(vec![structured.to_string()]));
    }

    #[test]
    fn what_the_server_says_has_failed_is_an_error() {
        let failed = json!({"content": [{"type": "text", "text": "no such file"}], "isError": true});
        assert_eq!(parts(&failed), Err("no such file".to_owned()));
        assert_eq!(parts(&json!({"isError": true})), Err("the server says that it failed".to_owned()));
        assert!(parts(&json!([])).unwrap_err().starts_with("the server answered with something else"));
    }

    #[test]
    fn a_result_is_bounded_however_it_is_cut_up() {
        let text = json!({"type": "text", "text": "x".repeat(50_000)});
        let many = parts(&json!({"content": [text, text, text]})).unwrap();
        let lengths: Vec<usize> = many.iter().map(String::len).collect();
        assert_eq!((lengths, many[2].as_str()), (vec![50_000, 10_029, 27], "[1 more parts are left out]"));
        assert!(many[1].ends_with("x\n[cut: 40000 more characters]"));
        let short = json!({"type": "text", "text": "x"});
        let many = parts(&json!({"content": vec![short; 200]})).unwrap();
        assert_eq!((many.len(), many[100].as_str()), (101, "[100 more parts are left out]"));
        let large = json!({"type": "image", "data": "A".repeat(28 * 1024 * 1024), "mimeType": "image/png"});
        assert_eq!(
            parts(&json!({"content": [large]})),
            Ok(vec!["[the image (image/png) is left out: too large]".to_owned()])
        );
    }
}
