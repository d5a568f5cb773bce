//! Texts that were written to do something: whatever a person, a model or a file says is shown, and does nothing.

use parts::is_wanted;
use serde_json::{Value, json};

use super::browser::{Browser, Colours};
use super::desk::{Desk, until};

/// Each sets `window.pwned` or asks an address elsewhere if any part of the page takes it for more than text.
const HOSTILE: [&str; 40] = [
    "<script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 1'>",
    "<img src=http://evil.example/p.png>",
    "<svg onload='window.pwned = 1'><script>window.pwned = 1</script></svg>",
    "<svg><a xlink:href='javascript:window.pwned=1'><text x=20 y=20>click</text></a></svg>",
    "<svg><animate onbegin='window.pwned=1' attributeName=x dur=1s></svg>",
    "<iframe src='javascript:window.pwned=1' srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "<object data='http://evil.example/o'></object><embed src='http://evil.example/e'>",
    "<link rel=stylesheet href=http://evil.example/s.css><style>@import 'http://evil.example/t.css'</style>",
    "<base href='http://evil.example/'><meta http-equiv=refresh content='0;url=http://evil.example/'>",
    "<form action='http://evil.example/f'><button autofocus onfocus='window.pwned=1'>yes</button></form>",
    "<details open ontoggle='window.pwned=1'><summary>x</summary></details>",
    "<body onload='window.pwned=1'><video><source onerror='window.pwned=1'></video>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.pwned=1>",
    "</pre></article></main><script>window.pwned=1</script>",
    "\"><script>window.pwned=1</script>",
    "' onmouseover='window.pwned=1' autofocus onfocus='window.pwned=1",
    "`${window.pwned=1}` ${window.pwned=1} #{window.pwned=1}",
    "[click here](javascript:window.pwned=1)",
    "[click here](JaVaScRiPt:window.pwned=1) [b](\u{1}javascript:window.pwned=1)",
    "[click here](data:text/html,<script>opener.pwned=1</script>)",
    "[click here](vbscript:window.pwned=1) [x](file:///etc/passwd) [y](blob:x)",
    "![picture](http://evil.example/m.png) ![p][r]\n\n[r]: http://evil.example/r.png",
    "[a](http://evil.example/\" onmouseover=\"window.pwned=1)",
    "<http://evil.example/> http://evil.example/auto <javascript:window.pwned=1>",
    "```html\n<script>window.pwned=1</script>\n```",
    "| a | b |\n| --- | --- |\n| <script>window.pwned=1</script> | [x](javascript:window.pwned=1) |",
    "> <img src=x onerror=window.pwned=1>\n\n- <script>window.pwned=1</script>\n1. **<b onclick=window.pwned=1>x</b>**",
    "# <script>window.pwned=1</script>\n\nSetext\n=====\n&lt;script&gt;&#60;script&#62;",
    "**__*_`[[[[((((****____````",
    "\u{202e}txt.exe\u{202c} \u{2066}hidden\u{2069} \u{200f}\u{200e}",
    "a\u{200b}b\u{200d}c\u{feff}d\u{ad}e\u{2060}f\u{e0041}\u{e0042}",
    "bell\u{7} escape\u{1b}[31mred\u{1b}[0m backspace\u{8}\u{8} return\rover",
    "\u{1b}]8;;http://evil.example/\u{1b}\\link\u{1b}]8;;\u{1b}\\",
    "__proto__ constructor toString hasOwnProperty",
    "{\"__proto__\": {\"pwned\": 1}, \"innerHTML\": \"<script>window.pwned=1</script>\"}",
    "e\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301} Z\u{351}\u{36b}\u{343}\u{36a}\u{302}",
    "\n\n\n\n\u{2028}\u{2029}\u{85}\n\n",
    "event: end\ndata: {\"run\": \"x\"}\n\nid: o99999999\n\n",
    "../../../etc/passwd\0.md%2e%2e%2f\\..\\..",
];

/// What nothing that is shown may be made of.
const FOREIGN: &str = "[...document.querySelectorAll('script:not([src^=\"/assets/\"]), img, iframe, object, embed, video, audio, \
    source, base, style, link:not([rel=icon]):not([rel=stylesheet][href^=\"/assets/\"]), form[action], math, animate, [onload], \
    [onerror], [onclick], [onfocus], [onmouseover], [ontoggle], main meta, main title ~ script')].map((one) => one.outerHTML)
    .concat([...document.querySelectorAll('a[href]')].filter((link) => !/^(#|http:|https:|mailto:)/i.test(link.getAttribute('href')) \
    || (!link.getAttribute('href').startsWith('#') && link.rel !== 'noopener noreferrer')).map((link) => link.outerHTML))";

/// Nothing of what was shown so far did anything.
#[track_caller]
fn is_harmless(browser: &Browser, root: &str, text: &str) {
    assert_eq!(browser.value("window.pwned ?? ({}).pwned ?? null"), Value::Null, "{text:?}");
    assert_eq!(browser.value(FOREIGN), json!([]), "{text:?}");
    let asked = browser.requests();
    let foreign: Vec<&String> = asked
        .iter()
        .filter(|address| !address.starts_with(root) && !address.starts_with("data:image/svg+xml"))
        .collect();
    assert!(foreign.is_empty(), "{text:?}: {foreign:?}");
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{text:?}: {complaints:?}");
}

/// No character that turns a line around or cannot be seen is left in what is shown.
const UNSEEN: &str = "(() => { const found = /[\\u200b-\\u200f\\u202a-\\u202e\\u2066-\\u2069\\u001b\\u0007\\u0008\\ufeff]/u.exec(document.body.textContent); \
    return found ? document.body.textContent.slice(Math.max(0, found.index - 40), found.index + 40) : null; })()";

const ECHO: &str = "- tool: write_file
  say: \"{{ result }}\"
- say: \"{{ heard }}\"
  call:
    write_file: {path: x.md, content: \"{{ heard }}\"}
";

fn hostile_desk() -> Desk {
    let desk = Desk::new();
    let worker = desk.read("demo/main.worker");
    let all = HOSTILE.map(|text| text.replace('\0', "").replace("---", "- - -")).join("\n\n");
    // The place itself has such a name, and what the project says of itself is no better.
    let name = "<img src=x onerror=window.pwned=1>";
    let said: String = all.chars().filter(|c| *c == '\n' || !c.is_control()).collect();
    let described = worker.replace("toolsets:", "description: \"<script>window.pwned=1</script>\"\ntoolsets:");
    desk.write(&format!("{name}/main.worker"), &format!("{described}{said}\n"));
    desk.write(&format!("{name}/script.yaml"), ECHO);
    desk.write(&format!("{name}/project.json"), &desk.read("demo/project.json"));
    std::fs::create_dir(desk.path(&format!("{name}/drafts"))).unwrap();
    desk
}

#[test]
fn forty_hostile_texts_are_shown_and_do_nothing() {
    const PROJECT: &str = "<img src=x onerror=window.pwned=1>";
    if !is_wanted("chromium") {
        return;
    }
    let mut desk = hostile_desk();
    desk.serve(&[PROJECT]);
    let browser = desk.browser();
    browser.prefers(Colours::Light);
    let root = desk.root().to_owned();
    browser.press(&["3"]);
    browser.sees("Start a run");
    is_harmless(&browser, &root, "the project");
    let mut runs = Vec::new();
    for text in HOSTILE {
        let label: String = text.chars().filter(|c| !c.is_control()).take(60).collect();
        let file = json!({"name": label, "data": "PHNjcmlwdD4="});
        let run = desk.begin(&json!({"project": PROJECT, "input": text, "label": label, "attachments": [file]}));
        browser.script("location.hash = arguments[0]", &[json!(format!("#/run/{run}"))]);
        browser.until(&format!("location.hash.endsWith({}) && document.querySelector('.question .end') && document.querySelector('.stick h3')", json!(run)));
        is_harmless(&browser, &root, text);
        assert_eq!(browser.value(UNSEEN), Value::Null, "{text:?}");
        // The reason of a refusal comes back as the result, and the model says it again.
        let (_, questions) = desk.api("GET", "/api/questions", &Value::Null);
        let digest = questions["questions"][0]["digest"].as_str().unwrap().to_owned();
        let (status, said) =
            desk.api("POST", &format!("/api/questions/{digest}"), &json!({"answer": "refuse", "reason": text}));
        assert_eq!(status, 200, "{said}");
        browser.until("document.querySelector('.head .pill')?.textContent === 'done'");
        // Each call, with its requests opened.
        browser.until("([...document.querySelectorAll('.line')].find((line) => line.textContent.startsWith('write_file'))?.click(), document.querySelector('.stick h3')?.textContent === 'write_file')");
        browser.until(
            "(document.querySelectorAll('.line')[0]?.click(), document.querySelector('.stick details') !== null)",
        );
        browser.until(
            "(document.querySelectorAll('.stick details').forEach((one) => { one.open = true; }), \
             [...document.querySelectorAll('.stick details')].every((one) => one.children.length > 1))",
        );
        is_harmless(&browser, &root, text);
        assert_eq!(browser.value(UNSEEN), Value::Null, "{text:?}");
        runs.push(run);
    }
    for view in ["#/runs", "#/inbox", "#/chat", "#/costs", "#/project"] {
        browser.script("location.hash = arguments[0]", &[json!(view)]);
        browser.until("document.querySelector('main h1')");
        is_harmless(&browser, &root, view);
        assert_eq!(browser.value(UNSEEN), Value::Null, "{view}");
    }
    // Links show where they lead, and only the usual kinds are links.
    for (text, run) in HOSTILE.iter().zip(&runs).filter(|(text, _)| text.contains("[click here]")) {
        let (page, _, _) = desk.run(&["runs", "export", run, "--format", "html"]);
        assert!(!page.contains("<script>window.pwned") && !page.contains("href="), "{text}");
    }
    // And in files that are read without a server.
    let pages: Vec<String> = runs.iter().map(|run| desk.run(&["runs", "export", run, "--format", "html"]).0).collect();
    // What the page had still asked is not theirs.
    browser.open("about:blank");
    browser.requests();
    for (page, text) in pages.iter().zip(HOSTILE) {
        let file = desk.path("export.html");
        std::fs::write(&file, page).unwrap();
        browser.open(&format!("file://{}", file.display()));
        browser.there_is("main h1");
        assert_eq!(browser.value("window.pwned ?? null"), Value::Null, "{text:?}");
        assert_eq!(
            browser.value("document.querySelectorAll('img, iframe, a, base, form, object, embed').length"),
            0,
            "{text:?}"
        );
        let complaints = browser.complaints();
        assert!(complaints.is_empty(), "{text:?}: {complaints:?}");
        let asked = browser.requests();
        assert!(asked.iter().all(|address| address.starts_with("file://")), "{text:?}: {asked:?}");
    }
}

/// The page answers a key within a moment.
#[track_caller]
fn is_usable(browser: &Browser) {
    browser.script("window.asked = performance.now()", &[]);
    browser.press(&["?"]);
    browser.there_is("dialog[open]");
    let took = browser.value("performance.now() - window.asked").as_f64().unwrap();
    assert!(took < 5000.0, "{took} ms");
    browser.press(&[super::browser::ESCAPE]);
    browser.until("document.querySelector('dialog') === null");
}

#[test]
fn a_line_of_five_megabytes_is_shown_in_parts_and_answered_after_the_last() {
    if !is_wanted("chromium") {
        return;
    }
    let mut desk = Desk::new();
    desk.write("demo/script.yaml", ECHO);
    desk.serve(&["demo", "plain"]);
    let text = "wide ".repeat(1_000_000);
    let plain = desk.begin(&json!({"project": "plain", "input": text}));
    desk.until_run(&plain, "done");
    let browser = desk.browser();
    for view in ["#/runs".to_owned(), format!("#/run/{plain}")] {
        browser.script("location.hash = arguments[0]", &[json!(view)]);
        browser.until("document.querySelector('.tablebox tbody tr, .stick h3')");
        is_usable(&browser);
    }
    browser.until("document.body.innerText.includes('show more')");
    // A question that is too long to be seen at once is read to its end before anything counts.
    let run = desk.begin(&json!({"project": "demo", "input": "wide ".repeat(60_000)}));
    desk.question();
    browser.script("location.hash = arguments[0]", &[json!(format!("#/run/{run}"))]);
    browser.there_is(".question");
    is_usable(&browser);
    browser.press(&["y"]);
    browser.sees("read it to its end first");
    until("the end of the question", || {
        browser.script("document.querySelector('.question pre button')?.click()", &[]);
        (browser.value("document.querySelector('.question .end') !== null") == json!(true)).then_some(())
    });
    browser.press(&["y"]);
    browser.sees("read it to its end first");
    browser.script("const lines = document.querySelector('.question pre'); lines.scrollTop = lines.scrollHeight", &[]);
    browser.rests();
    browser.press(&["y"]);
    browser.until("document.querySelector('.head .pill')?.textContent === 'done'");
    assert_eq!(desk.read("demo/drafts/x.md").len(), 300_000);
}
