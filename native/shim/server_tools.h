// llama-server's tools and MCP servers, without its HTTP server: what GET and POST /tools answer.
//
// Threads: `pyggml_tools_start` and `_free` on one, with no call left at the end; all others on any, and each call on one
// at a time, but for `pyggml_tool_call_stop`.
#pragma once

#include "server.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pyggml_tools     pyggml_tools;     // the tools of a command line, and its MCP servers
typedef struct pyggml_tool_call pyggml_tool_call; // one POST /tools

// Spawns each MCP server once and asks it for its tools: blocks for that. *out stays NULL where the command line names
// neither tools nor servers. Fails for a tool that does not exist and for a configuration that cannot be read.
PYGGML_API int  pyggml_tools_start(const pyggml_args * args, pyggml_tools ** out, pyggml_error * err);
// Calls of MCP tools that are under way come to an end. Does not block; idempotent.
PYGGML_API void pyggml_tools_shutdown(pyggml_tools * tools);
// Ends the MCP servers: blocks for that.
PYGGML_API void pyggml_tools_free(pyggml_tools * tools);

// The JSON of GET /tools.
PYGGML_API int pyggml_tools_list(const pyggml_tools * tools, pyggml_bytes * out, pyggml_error * err);

// `headers` are 2 * n_headers strings, a name before each value.
PYGGML_API int  pyggml_tool_call_new(pyggml_tools * tools, const char * body, size_t size, int32_t n_headers,
                                     const char * const * headers, pyggml_tool_call ** out, pyggml_error * err);
// Runs the tool to its end, or starts it where the body asks for a stream. Blocks. What is wrong with the body is an
// answer like any other.
PYGGML_API int  pyggml_tool_call_run(pyggml_tool_call * call, pyggml_error * err);
// A tool that streams ends soon, and then its stream.
PYGGML_API void pyggml_tool_call_stop(pyggml_tool_call * call);
PYGGML_API void pyggml_tool_call_free(pyggml_tool_call * call);

typedef struct pyggml_tool_answer {
    int32_t       status;       // of HTTP
    int32_t       is_stream;
    const char *  content_type; // valid as long as the call, as `body`
    pyggml_view   body;         // none of a stream
} pyggml_tool_answer;

// Of a call that was run.
PYGGML_API void pyggml_tool_call_get_answer(const pyggml_tool_call * call, pyggml_tool_answer * out);
// The next chunk of a stream, possibly empty: blocks until there is one. *has_more is 0 with the last one.
PYGGML_API int  pyggml_tool_call_next(pyggml_tool_call * call, pyggml_bytes * out, int32_t * has_more,
                                      pyggml_error * err);

#ifdef __cplusplus
}
#endif
