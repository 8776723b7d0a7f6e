//! The tools as an MCP server: what a client lists and calls. Stateless: every request stands for itself, so a
//! restart loses nothing, and no session of one caller can be another's.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::combinators::BoxBody;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool as McpTool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::definitions::Tool;
use super::execution::Toolbox;

/// Most bytes of a client's message: a text to remember is the longest.
pub const MAX_MESSAGE: usize = 1 << 20;

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
        let arguments = serde_json::Value::Object(call.arguments.unwrap_or_default()).to_string();
        let result = self.tools.call(&call.name, &arguments).await;
        let content = vec![ContentBlock::text(result.text)];
        let answer = if result.failed { CallToolResult::error(content) } else { CallToolResult::success(content) };
        Ok(answer.into())
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
pub async fn answer<B>(tools: Toolbox, hosts: Hosts, request: Request<B>) -> Response<BoxBody<Bytes, Infallible>>
where
    B: Body + Send + 'static,
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
    StreamableHttpService::new(server, Arc::new(NeverSessionManager::default()), config).handle(request).await
}
