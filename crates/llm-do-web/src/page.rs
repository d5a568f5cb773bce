//! The page's files: in the program, each under a name that has its digest, so that a browser keeps what it has and never mixes
//! two versions.

use std::sync::OnceLock;

use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use llm_do::records::digest;

use crate::error::ApiError;

/// A file of the page.
struct PageFile {
    name: &'static str,
    text: &'static str,
}

const FILES: &[PageFile] = &[
    PageFile { name: "style.css", text: include_str!("../page/style.css") },
    PageFile { name: "dom.js", text: include_str!("../page/dom.js") },
    PageFile { name: "api.js", text: include_str!("../page/api.js") },
    PageFile { name: "markdown.js", text: include_str!("../page/markdown.js") },
    PageFile { name: "pictures.js", text: include_str!("../page/pictures.js") },
    PageFile { name: "question.js", text: include_str!("../page/question.js") },
    PageFile { name: "runs.js", text: include_str!("../page/runs.js") },
    PageFile { name: "run.js", text: include_str!("../page/run.js") },
    PageFile { name: "inbox.js", text: include_str!("../page/inbox.js") },
    PageFile { name: "project.js", text: include_str!("../page/project.js") },
    PageFile { name: "chat.js", text: include_str!("../page/chat.js") },
    PageFile { name: "costs.js", text: include_str!("../page/costs.js") },
    PageFile { name: "main.js", text: include_str!("../page/main.js") },
];
const INDEX: &str = include_str!("../page/index.html");

/// The page with the names that its files have now.
struct NamedPage {
    index: String,
    /// Name, kind and text.
    files: Vec<(String, &'static str, String)>,
}

fn named() -> &'static NamedPage {
    static PAGE: OnceLock<NamedPage> = OnceLock::new();
    PAGE.get_or_init(|| {
        // One digest for all: modules name each other.
        let mut mark = digest(FILES.iter().map(|file| file.text));
        mark.truncate(12);
        let marked = |name: &str| match name.rsplit_once('.') {
            Some((stem, ending)) => format!("{stem}-{mark}.{ending}"),
            None => name.to_owned(),
        };
        let with_names = |text: &str| {
            FILES.iter().fold(text.to_owned(), |text, file| {
                text.replace(&format!("./{}\"", file.name), &format!("./{}\"", marked(file.name)))
            })
        };
        let kind = |name: &str| match name {
            "style.css" => "text/css; charset=utf-8",
            _ => "text/javascript; charset=utf-8",
        };
        let files = FILES.iter().map(|file| (marked(file.name), kind(file.name), with_names(file.text))).collect();
        NamedPage { index: with_names(INDEX).replace("\"./", "\"/assets/"), files }
    })
}

/// One file, or the page itself. It needs no key and holds nothing.
pub async fn file(request: Request) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let path = request.uri().path();
    if is_read && path == "/" {
        return typed("text/html; charset=utf-8", "no-cache", named().index.clone());
    }
    let asked = path.strip_prefix("/assets/").filter(|_| is_read);
    let found = asked.and_then(|name| named().files.iter().find(|(known, ..)| known == name));
    match found {
        Some((_, kind, text)) => typed(kind, "public, max-age=31536000, immutable", text.clone()),
        None => ApiError::new(StatusCode::NOT_FOUND, "not_found", "there is nothing at this address").into_response(),
    }
}

fn typed(kind: &'static str, kept: &'static str, text: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static(kept)),
    ];
    (headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_asks_nobody_else() {
        let weight = INDEX.len() + FILES.iter().map(|file| file.text.len()).sum::<usize>();
        assert!(weight <= 150 * 1024, "{weight}");
        for (name, _, text) in &named().files {
            let others = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!others.contains("http://") && !others.contains("https://"), "{name}");
            for forbidden in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=\""] {
                assert!(!text.contains(forbidden), "{name} has {forbidden}");
            }
        }
        assert!(!named().index.contains("\"./"));
    }
}
