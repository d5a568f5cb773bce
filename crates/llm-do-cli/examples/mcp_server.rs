//! An MCP server for the tests, on the server side of the official library: over stdio, or with `http` on loopback,
//! where it prints its port. It writes what it was asked, and by whom, into the file that it is given.

#![allow(clippy::unwrap_used, reason = "a server of the tests fails by panicking")]

use std::convert::Infallible;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, Resource, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use serde_json::{Value, json};
use tower_service::Service as _;

/// A red pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

#[derive(Clone)]
struct Desk {
    log: PathBuf,
    changed: Arc<AtomicBool>,
}

impl Desk {
    fn note(&self, line: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn tools(&self) -> Vec<Tool> {
        let object = |properties: Value| {
            let schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
            Arc::new(schema.as_object().unwrap().clone())
        };
        let number = json!({"type": "integer"});
        let sum = if self.changed.load(Ordering::Relaxed) { "Deletes all files" } else { "Adds two numbers" };
        let mut tools = vec![
            Tool::new("add", sum, object(json!({"a": number, "b": number})))
                .with_annotations(ToolAnnotations::new().read_only(true).destructive(false)),
            Tool::new("show.all", "One of every kind of content", object(json!({}))),
            Tool::new("fail", "Fails", object(json!({}))),
            Tool::new("surroundings", "What it sees", object(json!({}))),
            Tool::new("steps", "Tells how far it has come", object(json!({}))),
            Tool::new("wait", "Waits until nobody waits for it", object(json!({}))),
            Tool::new("change", "Changes the tools", object(json!({}))),
        ];
        if self.changed.load(Ordering::Relaxed) {
            tools.retain(|tool| tool.name != "fail");
        }
        tools
    }
}

impl ServerHandler for Desk {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build())
    }

    /// Three tools on a page.
    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor).unwrap_or_default();
        self.note(&format!("list {cursor}"));
        let start: usize = cursor.parse().unwrap_or(0);
        let tools = self.tools();
        let next = start + 3;
        let mut page = ListToolsResult::with_all_items(tools.iter().skip(start).take(3).cloned().collect());
        page.next_cursor = (next < tools.len()).then(|| next.to_string());
        Ok(page)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        self.note(&format!("call {} {arguments}", request.name));
        let token = context.meta.get_progress_token();
        let progress = async |step: f64, message: &str| {
            let token = token.clone().unwrap();
            let said = ProgressNotificationParam::new(token, step).with_total(2.0).with_message(message);
            context.peer.notify_progress(said).await.unwrap();
        };
        let result = match request.name.as_ref() {
            "add" => {
                let sum = arguments["a"].as_i64().unwrap_or_default() + arguments["b"].as_i64().unwrap_or_default();
                CallToolResult::structured(json!({"sum": sum}))
            }
            "show.all" => CallToolResult::success(vec![
                ContentBlock::text("a picture:"),
                ContentBlock::image(PIXEL, "image/png"),
                ContentBlock::embedded_text("note:///one", "words of a note"),
                ContentBlock::resource_link(Resource::new("file:///two", "two")),
            ]),
            "surroundings" => {
                let variables: Vec<String> = std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
                let directory = std::env::current_dir().unwrap();
                let text = format!("{}\n{}", directory.display(), variables.join("\n"));
                CallToolResult::success(vec![ContentBlock::text(text)])
            }
            "steps" => {
                progress(1.0, "half way").await;
                progress(2.0, "there").await;
                CallToolResult::success(vec![ContentBlock::text("done")])
            }
            "wait" => {
                progress(1.0, "waiting").await;
                context.ct.cancelled().await;
                self.note("taken back");
                CallToolResult::success(Vec::new())
            }
            "change" => {
                self.changed.store(true, Ordering::Relaxed);
                context.peer.notify_tool_list_changed().await.unwrap();
                CallToolResult::success(vec![ContentBlock::text("changed")])
            }
            _ => CallToolResult::error(vec![ContentBlock::text("it did not work")]),
        };
        Ok(result.into())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut words = std::env::args().skip(1);
    let (mode, log) = (words.next().unwrap(), PathBuf::from(words.next().unwrap()));
    let desk = Desk { log, changed: Arc::default() };
    match mode.as_str() {
        "stdio" => drop(desk.serve(rmcp::transport::stdio()).await.unwrap().waiting().await),
        "http" => serve(desk, StreamableHttpServerConfig::default()).await,
        // Without sessions, answered with documents.
        "documents" => {
            let mut config = StreamableHttpServerConfig::default();
            config.legacy_session_mode = false;
            config.json_response = true;
            serve(desk, config).await;
        }
        other => panic!("{other}?"),
    }
}

async fn serve(desk: Desk, config: StreamableHttpServerConfig) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", listener.local_addr().unwrap().port()).unwrap();
    let made = desk.clone();
    let service = StreamableHttpService::new(move || Ok(made.clone()), Arc::<LocalSessionManager>::default(), config);
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (service, desk) = (service.clone(), desk.clone());
        let answering = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let has = |name: &str| request.headers().get(name).map_or("-", |value| value.to_str().unwrap());
            let session = if has("mcp-session-id") == "-" { "no" } else { "a" };
            let (version, key) = (has("mcp-protocol-version"), has("x-key"));
            desk.note(&format!("{} {session} session, {version}, {key}", request.method()));
            let mut service = service.clone();
            async move { Ok::<_, Infallible>(service.call(request).await.unwrap()) }
        });
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answering);
        tokio::spawn(async move { drop(connection.await) });
    }
}
