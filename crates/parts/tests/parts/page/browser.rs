//! A browser without a screen, driven as `WebDriver` says: by one request for each thing that a person or a look at the page does.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Far more than anything here takes.
pub const DEADLINE: Duration = Duration::from_mins(2);

/// Keys that are no letters, as `WebDriver` writes them.
pub const ENTER: &str = "\u{e007}";
pub const TAB: &str = "\u{e004}";
pub const BACKSPACE: &str = "\u{e003}";
pub const ESCAPE: &str = "\u{e00c}";
const CONTROL: &str = "\u{e009}";

/// One window of a browser of its own, gone with the test.
pub struct Browser {
    driver: Child,
    at: SocketAddr,
    session: String,
    /// What the browser keeps.
    _place: TempDir,
}

/// Which colours the person prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    Light,
    Dark,
}

impl Colours {
    pub fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

impl Browser {
    pub fn start() -> Self {
        let place = TempDir::new().unwrap();
        let mut driver = Command::new("chromedriver");
        driver.arg("--port=0").env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        // A group of its own: with it everything ends that the browser is made of.
        driver.env("HOME", place.path()).env("TMPDIR", place.path()).process_group(0);
        let mut driver = driver.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(driver.stdout.take().unwrap()).lines();
        let started = said.find_map(|line| {
            line.unwrap().strip_prefix("ChromeDriver was started successfully on port ").map(str::to_owned)
        });
        let port: u16 = started.unwrap().trim_end_matches('.').parse().unwrap();
        let mut browser = Self { driver, at: ([127, 0, 0, 1], port).into(), session: String::new(), _place: place };
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-device-scale-factor=1",
                "--hide-scrollbars", "--no-first-run", "--disable-background-networking", "--disable-component-update",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            ]},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }}});
        let made = browser.ask("POST", "/session", &wanted).unwrap();
        made["sessionId"].as_str().unwrap().clone_into(&mut browser.session);
        browser.size(1280, 900);
        browser
    }

    /// Sends one request to the driver; its error is a text that begins with its name.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let mut stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.at,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(reader.read_line(&mut line).unwrap() > 0, "the driver said nothing to {method} {path}");
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut bytes = vec![0; length];
        reader.read_exact(&mut bytes).unwrap();
        let mut answer: Value = serde_json::from_slice(&bytes).unwrap();
        let value = answer["value"].take();
        match value["error"].as_str() {
            Some(error) => Err(format!("{error}: {}", value["message"].as_str().unwrap_or_default())),
            None => Ok(value),
        }
    }

    #[track_caller]
    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_command(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    fn try_command(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        self.ask(method, &format!("/session/{}{path}", self.session), body)
    }

    /// A command of the browser's own protocol.
    #[track_caller]
    pub fn devtools(&self, name: &str, parameters: &Value) -> Value {
        self.command("POST", "/goog/cdp/execute", &json!({"cmd": name, "params": parameters}))
    }

    #[track_caller]
    pub fn open(&self, address: &str) {
        self.command("POST", "/url", &json!({"url": address}));
    }

    #[track_caller]
    pub fn reload(&self) {
        self.command("POST", "/refresh", &json!({}));
    }

    pub fn size(&self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
    }

    pub fn prefers(&self, colours: Colours) {
        let features = json!([{"name": "prefers-color-scheme", "value": colours.name()}]);
        self.devtools("Emulation.setEmulatedMedia", &json!({"features": features}));
    }

    /// What a script returns; `arguments` are its arguments.
    #[track_caller]
    pub fn script(&self, script: &str, arguments: &[Value]) -> Value {
        self.command("POST", "/execute/sync", &json!({"script": script, "args": arguments}))
    }

    /// What an expression is.
    #[track_caller]
    pub fn value(&self, expression: &str) -> Value {
        self.script(&format!("return {expression};"), &[])
    }

    /// Waits until an expression is something: neither nothing nor false nor empty.
    #[track_caller]
    pub fn until(&self, expression: &str) -> Value {
        let begun = Instant::now();
        loop {
            let seen = self.value(&format!("(() => {{ try {{ return {expression}; }} catch {{ return null; }} }})()"));
            if !matches!(seen, Value::Null | Value::Bool(false)) && seen != "" {
                return seen;
            }
            assert!(begun.elapsed() < DEADLINE, "waited in vain for {expression}; the page:\n{}", self.page());
            std::thread::yield_now();
        }
    }

    /// Lets so much time pass as a question wants between it and its answer.
    #[track_caller]
    pub fn rests(&self) {
        self.until("document.querySelector('.question .end') !== null");
        self.script("window.restedFrom = performance.now()", &[]);
        self.until("performance.now() - window.restedFrom > 400");
    }

    /// All text that is seen.
    #[track_caller]
    pub fn page(&self) -> String {
        self.value("document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Waits until a text is seen.
    #[track_caller]
    pub fn sees(&self, text: &str) {
        self.until(&format!("document.body.innerText.includes({})", json!(text)));
    }

    /// Waits until there is such an element.
    #[track_caller]
    pub fn there_is(&self, selector: &str) {
        self.until(&format!("document.querySelector({}) !== null", json!(selector)));
    }

    #[track_caller]
    fn element(&self, using: &str, sought: &str) -> String {
        let begun = Instant::now();
        loop {
            match self.try_command("POST", "/element", &json!({"using": using, "value": sought})) {
                Ok(found) => return found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned(),
                Err(error) if error.starts_with("no such element") => {}
                Err(error) => panic!("{sought}: {error}"),
            }
            assert!(begun.elapsed() < DEADLINE, "there is no {sought}; the page:\n{}", self.page());
            std::thread::yield_now();
        }
    }

    /// Clicks as a mouse does: what is covered or moves away is tried again.
    #[track_caller]
    fn click_on(&self, using: &str, sought: &str) {
        let begun = Instant::now();
        loop {
            let element = self.element(using, sought);
            match self.try_command("POST", &format!("/element/{element}/click"), &json!({})) {
                Ok(_) => return,
                Err(error) => assert!(begun.elapsed() < DEADLINE, "{sought} cannot be clicked: {error}"),
            }
        }
    }

    #[track_caller]
    pub fn click(&self, selector: &str) {
        self.click_on("css selector", selector);
    }

    /// Clicks the button or link with these words.
    #[track_caller]
    pub fn click_words(&self, words: &str) {
        let quoted = json!(words);
        self.click_on("xpath", &format!("//*[self::button or self::a][contains(normalize-space(.), {quoted})]"));
    }

    /// Types into a field; what was in it is gone.
    #[track_caller]
    pub fn fill(&self, selector: &str, text: &str) {
        let element = self.element("css selector", selector);
        self.command("POST", &format!("/element/{element}/clear"), &json!({}));
        self.command("POST", &format!("/element/{element}/value"), &json!({"text": text}));
    }

    /// Names a file in a field for files.
    #[track_caller]
    pub fn choose_file(&self, selector: &str, file: &Path) {
        let element = self.element("css selector", selector);
        self.command("POST", &format!("/element/{element}/value"), &json!({"text": file.to_str().unwrap()}));
    }

    /// Presses keys one after the other, wherever the focus is.
    #[track_caller]
    pub fn press(&self, keys: &[&str]) {
        let strokes = keys
            .iter()
            .flat_map(|key| [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]);
        self.strokes(&strokes.collect::<Vec<_>>());
    }

    #[track_caller]
    pub fn press_with_control(&self, key: &str) {
        let stroke = |kind: &str, value: &str| json!({"type": kind, "value": value});
        self.strokes(&[
            stroke("keyDown", CONTROL),
            stroke("keyDown", key),
            stroke("keyUp", key),
            stroke("keyUp", CONTROL),
        ]);
    }

    #[track_caller]
    fn strokes(&self, strokes: &[Value]) {
        self.command("POST", "/actions", &json!({"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]}));
    }

    /// The text of the whole page in letters that a keyboard has, typed where the focus is.
    #[track_caller]
    pub fn types(&self, text: &str) {
        let keys: Vec<String> = text.chars().map(String::from).collect();
        self.press(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// What is seen, as PNG.
    pub fn picture(&self) -> Vec<u8> {
        let data = self.command("GET", "/screenshot", &Value::Null);
        base64::engine::general_purpose::STANDARD.decode(data.as_str().unwrap()).unwrap()
    }

    /// What was logged since the last time, of `browser` (what the console shows) or `performance` (what was asked for).
    fn log(&self, of: &str) -> Vec<Value> {
        self.command("POST", "/se/log", &json!({"type": of})).as_array().unwrap().clone()
    }

    /// What the console complains of: refused scripts, errors of ours.
    pub fn complaints(&self) -> Vec<String> {
        self.log("browser").iter().map(|line| line["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The address of every request that was made since the last time, or was to be made.
    pub fn requests(&self) -> Vec<String> {
        let messages = self.log("performance");
        let read =
            |line: &Value| serde_json::from_str::<Value>(line["message"].as_str().unwrap()).unwrap()["message"].clone();
        let address = |message: Value| match message["method"].as_str() {
            Some("Network.requestWillBeSent") => message["params"]["request"]["url"].as_str().map(str::to_owned),
            Some("Network.webSocketCreated") => message["params"]["url"].as_str().map(str::to_owned),
            _ => None,
        };
        messages.iter().map(read).filter_map(address).collect()
    }

    /// Memory of the largest process that shows a page, without what it shares with others, in bytes.
    pub fn memory_of_tab(&self) -> u64 {
        let group = i32::try_from(self.driver.id()).unwrap();
        let processes =
            fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let of_tab = processes.filter(|process| {
            let line = fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            let own = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(2)?.parse::<i32>().ok());
            own == Some(group) && line.contains("--type=renderer")
        });
        let memory = |process: u32| {
            let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or("0").to_owned();
            line.split_whitespace().next().and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        of_tab.map(memory).max().unwrap_or(0)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.ask("DELETE", &format!("/session/{}", self.session), &Value::Null);
        let group = rustix::process::Pid::from_child(&self.driver);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.driver.wait();
    }
}
