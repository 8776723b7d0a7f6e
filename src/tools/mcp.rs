//! The tools as an MCP server: what a client lists and calls. Stateless: every request stands for itself, so a
//! restart loses nothing, and no session of one caller can be another's.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomRequest, CustomResult, ErrorCode,
    Implementation, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool as McpTool,
    ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};

use super::definitions::Tool;
use super::execution::Toolbox;

/// Most bytes of a client's message: a text to remember is the longest.
pub const MAX_MESSAGE: usize = 1 << 20;

/// The requests that are answered. One of these that does not read as what it is has other parameters than it may.
const METHODS: [&str; 4] = ["initialize", "ping", "tools/list", "tools/call"];

/// What a client is told of all the tools.
const INSTRUCTIONS: &str = "Reads back what compactproxy removed from conversations on their way to the model. A notice in \
                            the conversation names the id of a removed text; read_evicted returns it.";

/// One request's server: the tools of who sent it.
struct Server {
    tools: Toolbox,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("compactproxy", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(INSTRUCTIONS.to_owned());
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.enabled().tools().map(described).collect()))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if self.get_tool(&call.name).is_none() {
            return Err(ErrorData::invalid_params(self.tools.no_tool(), None));
        }
        let arguments = Value::Object(call.arguments.unwrap_or_default()).to_string();
        let result = self.tools.call(&call.name, &arguments).await;
        let content = vec![ContentBlock::text(result.text)];
        let answer = if result.failed { CallToolResult::error(content) } else { CallToolResult::success(content) };
        Ok(answer.into())
    }

    /// What the library cannot read as any request that it knows.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(match METHODS.contains(&request.method.as_str()) {
            true => {
                ErrorData::invalid_params(format!("the params of {} are not as it takes them", request.method), None)
            }
            false => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None),
        })
    }

    fn get_tool(&self, name: &str) -> Option<McpTool> {
        Tool::named(name).filter(|tool| self.tools.enabled().has(*tool)).map(described)
    }
}

fn described(tool: Tool) -> McpTool {
    let definition = tool.definition();
    let read_only = ToolAnnotations::new().read_only(tool != Tool::MemorySave).open_world(false);
    let read_only = if tool == Tool::MemorySave { read_only.destructive(false) } else { read_only };
    McpTool::new(definition.name, definition.description, Arc::new(definition.schema())).with_annotations(read_only)
}

/// Which host names a request may be for; another name that leads here is an attack on a browser's user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hosts {
    /// Those of this machine: the listener is a loopback address.
    Local,
    /// Whatever names the machine has.
    Any,
}

/// Answers one message. Requests of web pages (they have an `Origin`) are refused.
///
/// The library's own word for a body that is no message is 415 with a text: the message is kept as it comes, and
/// JSON-RPC's error put in its place.
pub async fn answer<B>(tools: Toolbox, hosts: Hosts, request: Request<B>) -> Response<BoxBody<Bytes, Infallible>>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Display,
{
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(MAX_MESSAGE)
        .enforce_origin_validation();
    let config = match hosts {
        Hosts::Local => config,
        Hosts::Any => config.disable_allowed_hosts(),
    };
    let server = move || Ok(Server { tools: tools.clone() });
    let service = StreamableHttpService::new(server, Arc::new(NeverSessionManager::default()), config);
    let (is_json, seen) = (is_json(request.headers()), Arc::<Mutex<Vec<Bytes>>>::default());
    let kept = Arc::clone(&seen);
    let request = request.map(|body| {
        body.map_frame(move |frame| {
            kept.lock().unwrap_or_else(PoisonError::into_inner).extend(frame.data_ref().cloned());
            frame
        })
    });
    let answer = service.handle(request).await;
    if answer.status() != StatusCode::UNSUPPORTED_MEDIA_TYPE || !is_json {
        return answer;
    }
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    no_message(&seen.concat())
}

/// Whether a message says that it is JSON: all else is no message of the transport's.
fn is_json(headers: &HeaderMap) -> bool {
    let said = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    said.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

/// The error for a body that is no message, with its id where that can be read.
fn no_message(body: &[u8]) -> Response<BoxBody<Bytes, Infallible>> {
    let (code, message, id) = match serde_json::from_slice::<Value>(body) {
        Err(error) => (ErrorCode::PARSE_ERROR, format!("the body is no JSON: {error}"), None),
        Ok(value) => {
            (ErrorCode::INVALID_REQUEST, "the body is no JSON-RPC 2.0 message".to_owned(), value.get("id").cloned())
        }
    };
    let id = id.filter(|id| id.is_string() || id.is_number());
    let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}});
    let mut answer = Response::new(Full::new(Bytes::from(error.to_string())).boxed());
    *answer.status_mut() = StatusCode::BAD_REQUEST;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
