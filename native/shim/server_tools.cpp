// Tools and MCP servers, through llama-server's own handlers of /tools: they take plain structs and need no HTTP server.
#include "server_tools.h"
#include "server_types.hpp"

#include "server-mcp.h"
#include "server-tools.h"

#include <atomic>

struct pyggml_tools {
    server_mcp   mcp; // the tools use it, so it goes last
    server_tools tools;
};

struct pyggml_tool_call {
    pyggml_tools *              tools;
    std::atomic<bool>           stopped{ false };
    const std::function<bool()> should_stop = [this] { return stopped.load(); };
    server_http_req             request;
    server_http_res_ptr         response; // its end waits for a thread that reads the request, so it goes first

    pyggml_tool_call(pyggml_tools * tools, std::map<std::string, std::string> headers, std::string body) :
        tools(tools), request{ {}, std::move(headers), "/tools", "", std::move(body), {}, should_stop } {}
};

// What a server with these flags lets its clients do, as llama-server says it in its log.
static void warn_of_features(const common_params & params, bool has_mcp) {
    const std::pair<bool, const char *> features[] = {
        { params.ui_mcp_proxy, "MCP proxy (experimental)" },
        { !params.server_tools.empty(), "server tools (experimental)" },
        { !params.server_tools_runtime.empty(), "tools runtime (experimental)" },
        { has_mcp, "MCP servers (experimental)" },
    };
    std::vector<std::string> names;
    for (const auto & [is_on, name] : features) {
        if (is_on) {
            names.push_back(name);
        }
    }
    if (!names.empty()) {
        SRV_WRN("security: %s enabled - do not expose to untrusted environments\n", string_join(names, ", ").c_str());
    }
}

extern "C" int pyggml_tools_start(const pyggml_args * args, pyggml_tools ** out, pyggml_error * err) {
    *out = nullptr;
    return pyggml_guard(err, [&] {
        const common_params & params = args->params;
        auto                  tools  = std::make_unique<pyggml_tools>();
        tools->mcp.start(params);
        const bool has_mcp = !tools->mcp.empty();
        if (has_mcp || !params.server_tools.empty()) {
            tools->tools.setup(params.server_tools, tools->mcp, params.server_tools_runtime);
            *out = tools.release();
        }
        warn_of_features(params, has_mcp);
    });
}

extern "C" void pyggml_tools_shutdown(pyggml_tools * tools) {
    tools->mcp.shutdown();
}

extern "C" void pyggml_tools_free(pyggml_tools * tools) {
    delete tools;
}

extern "C" int pyggml_tools_list(const pyggml_tools * tools, pyggml_bytes * out, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        const std::function<bool()> never = [] { return false; };
        const auto                  response = tools->tools.handle_get({ {}, {}, "/tools", "", "", {}, never });
        if (response->status != 200) {
            throw std::runtime_error(response->data);
        }
        pyggml_bytes_assign(out, response->data);
    });
}

extern "C" int pyggml_tool_call_new(pyggml_tools * tools, const char * body, size_t size, int32_t n_headers,
                                    const char * const * headers, pyggml_tool_call ** out, pyggml_error * err) {
    *out = nullptr;
    return pyggml_guard(err, [&] {
        std::map<std::string, std::string> by_name;
        for (int32_t i = 0; i < n_headers; i++) {
            by_name.emplace(headers[2 * i], headers[2 * i + 1]);
        }
        *out = new pyggml_tool_call(tools, std::move(by_name), std::string(body, size));
    });
}

extern "C" int pyggml_tool_call_run(pyggml_tool_call * call, pyggml_error * err) {
    return pyggml_guard(err, [&] { call->response = call->tools->tools.handle_post(call->request); });
}

extern "C" void pyggml_tool_call_stop(pyggml_tool_call * call) {
    call->stopped.store(true);
}

extern "C" void pyggml_tool_call_free(pyggml_tool_call * call) {
    call->stopped.store(true);
    delete call;
}

extern "C" void pyggml_tool_call_get_answer(const pyggml_tool_call * call, pyggml_tool_answer * out) {
    const server_http_res & response = *call->response;
    out->status       = response.status;
    out->is_stream    = response.is_stream();
    out->content_type = response.content_type.c_str();
    out->body         = { reinterpret_cast<const uint8_t *>(response.data.data()), response.data.size() };
}

extern "C" int pyggml_tool_call_next(pyggml_tool_call * call, pyggml_bytes * out, int32_t * has_more,
                                     pyggml_error * err) {
    return pyggml_guard(err, [&] {
        std::string chunk;
        *has_more = call->response->next(chunk);
        pyggml_bytes_assign(out, chunk);
    });
}
