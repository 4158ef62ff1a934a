// The router of several models: llama-server's own, which starts its own program once for each model. Here that start
// becomes pyggml-server, so that a model's chats are parked and restored as with one model.
//
// The environment says what pyggml-server adds to it. PYGGML_ROUTER_PYTHON: the Python that runs the models' servers.
// PYGGML_ROUTER_ADDED: a JSON file with options, pages and paths (written by pyggml_server/router/added.py).
// A router ends with the process that started it.
#include "arg.h"
#include "ggml-backend.h"
#include "server-http.h"

#include <nlohmann/json.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include <unistd.h>
#ifdef __linux__
#    include <sys/prctl.h>
#endif

using json = nlohmann::json;

int llama_server(int argc, char ** argv);

static int become_model_server(int argc, char ** argv) {
    const char * python = std::getenv("PYGGML_ROUTER_PYTHON");
    if (python == nullptr) {
        std::fprintf(stderr, "PYGGML_ROUTER_PYTHON is not set: start the router with pyggml-server, without -m\n");
        return 1;
    }
    // -P: what lies in the present folder is no module of ours
    std::vector<const char *> words = { python, "-P", "-m", "pyggml_server" };
    words.insert(words.end(), argv + 1, argv + argc);
    words.push_back(nullptr);
    execv(python, const_cast<char **>(words.data()));
    std::perror(python);
    return 1;
}

// One of pyggml-server's options: the parser only passes it on, to the models' servers. Its strings stay in `added`.
static common_arg option(const json & added) {
    const auto text = [](const json & value) { return value.get_ref<const std::string &>().c_str(); };
    common_arg made;
    for (const auto & name : added.at("names")) {
        made.args.push_back(text(name));
    }
    for (const auto & name : added.at("negated")) {
        made.args_neg.push_back(text(name));
    }
    made.help     = added.at("help");
    made.env      = text(added.at("env"));
    made.examples = { LLAMA_EXAMPLE_SERVER };
    if (const auto & hint = added.at("hint"); !hint.is_null()) {
        made.value_hint     = text(hint);
        made.handler_string = [](common_params &, const std::string &) {};
    } else {
        made.handler_bool = [](common_params &, bool) {};
    }
    return made;
}

// The page at a path: one with a model in the query, another one without.
static server_http_context::handler_t page(const json & added) {
    return [&added](const server_http_req & req) {
        const auto & chosen = added.at(req.get_param("model").empty() ? "without_model" : "with_model");
        auto res          = std::make_unique<server_http_res>();
        res->content_type = chosen.at("type");
        res->headers      = chosen.at("headers");
        res->data         = chosen.at("text");
        return res;
    };
}

static void add(const json & added) {
    for (const auto & one : added.at("options")) {
        common_params_add_program_option(option(one));
    }
    auto & routes = server_get_program_routes();
    for (const auto & path : added.at("public_paths")) {
        routes.public_paths.insert(path.get<std::string>());
    }
    for (const auto & [path, one] : added.at("pages").items()) {
        routes.router_pages[path] = page(one);
    }
    routes.router_proxied = added.at("proxied").get<std::vector<std::string>>();
}

int main(int argc, char ** argv) {
    if (std::getenv("LLAMA_SERVER_ROUTER_PORT") != nullptr) { // set by the router for what it starts
        return become_model_server(argc, argv);
    }
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
    static json added; // until the end: options and pages point into it
    if (const char * path = std::getenv("PYGGML_ROUTER_ADDED"); path != nullptr) {
        std::ifstream(path) >> added;
        add(added);
    }
    // backends come from the folder of this program; the current folder may be anybody's
    ggml_backend_set_search_path(std::filesystem::read_symlink("/proc/self/exe").parent_path().c_str());
    return llama_server(argc, argv);
}
