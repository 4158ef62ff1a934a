// Files and folders that the command line names. llama.cpp's parser says of some only that they failed, and takes others
// for what they are not: a folder as a file of API keys is an open server. What is asked here is asked before it reads.
#include "server_named_files.hpp"

#include "arg.h"
#include "server-common.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <unistd.h>
#include <unordered_map>
#include <vector>

using json = common_json;

// One value that a flag was given, or its variable in the environment.
struct named_value {
    std::string flag;  // as it was written
    std::string last;  // the last of its names
    std::string value;
};

// Read by the parser itself, while it parses.
static const std::set<std::string> READ_BY_PARSER = {
    "--grammar-file",       "--json-schema-file", "--chat-template-file", "--webui-config-file",
    "--mcp-servers-config", "--api-key-file",     "--models-preset",
};
static const std::set<std::string> OF_JSON = { "--json-schema-file", "--webui-config-file", "--mcp-servers-config" };

[[noreturn]] static void refuse(const std::string & flag, const std::string & value, const std::string & why) {
    throw std::invalid_argument("error: " + flag + " '" + value + "': " + why);
}

static const std::string NO_SUCH_FILE = "there is no such file";

// A pipe, as a shell's <(command) makes it: to look into it would wait for it, and take what is for its reader.
static bool is_read_once(const std::string & path) {
    std::error_code ignored;
    const auto      status = std::filesystem::status(path, ignored);
    return std::filesystem::exists(status) && !is_regular_file(status) && !is_directory(status);
}

// Empty if the file can be read.
static std::string why_unreadable(const std::string & path) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) {
        return "it is a folder: name a file";
    }
    if (is_read_once(path)) {
        return "";
    }
    errno = 0;
    if (std::ifstream(path)) {
        return "";
    }
    return errno == ENOENT ? NO_SUCH_FILE :
                             std::string("it cannot be read (") + strerror(errno) + "): see to its owner and mode";
}

static std::string text_of(const std::string & path) {
    std::ifstream file(path, std::ios::binary);
    return { std::istreambuf_iterator<char>(file), {} };
}

static bool is_gguf(const std::string & path) {
    char          magic[4] = {};
    std::ifstream file(path, std::ios::binary);
    return file.read(magic, sizeof(magic)) && memcmp(magic, "GGUF", sizeof(magic)) == 0;
}

static void check_json(const std::string & flag, const std::string & shown, const std::string & text) {
    try {
        (void) json::parse(text);
    } catch (const std::exception & e) {
        const std::string said = e.what();
        const size_t      at   = said.find("] ");
        refuse(flag, shown, "it is not JSON: " + (at == std::string::npos ? said : said.substr(at + 2)));
    }
}

// What cannot be read as an argument of the parser's is left to the parser, which says so.
static std::vector<named_value> named_values(int argc, char ** argv) {
    common_params            unused;
    common_params_context    known = common_params_parser_init(unused, LLAMA_EXAMPLE_SERVER, nullptr);
    std::vector<named_value> found;
    std::unordered_map<std::string, const common_arg *> by_name;
    for (const common_arg & option : known.options) {
        for (const std::string & name : option.get_args()) {
            by_name[name] = &option;
        }
        std::string value;
        if (option.value_hint != nullptr && option.get_value_from_env(value)) {
            found.push_back({ option.env, option.args.back(), value });
        }
    }
    for (int i = 1; i < argc; i++) {
        std::string name = argv[i];
        if (name.compare(0, 2, "--") == 0) {
            std::replace(name.begin(), name.end(), '_', '-');
        }
        const auto it = by_name.find(name);
        if (it == by_name.end()) {
            break;
        }
        if (it->second->value_hint != nullptr && i + 1 < argc) {
            found.push_back({ name, it->second->args.back(), argv[++i] });
        }
        if (it->second->value_hint_2 != nullptr) {
            i++;
        }
    }
    return found;
}

pyggml_named_files pyggml_check_named_files(int argc, char ** argv) {
    pyggml_named_files later;
    for (const named_value & named : named_values(argc, argv)) {
        if (named.last == "--log-file") {
            later.log_file = named.value;
        }
        if (READ_BY_PARSER.count(named.last) == 0) {
            continue;
        }
        const std::string why = why_unreadable(named.value);
        if (why == NO_SUCH_FILE) {
            continue; // the parser names it
        }
        if (!why.empty()) {
            refuse(named.flag, named.value, why);
        }
        const bool        is_json = OF_JSON.count(named.last) > 0 && !is_read_once(named.value);
        const std::string text    = is_json ? text_of(named.value) : "";
        if (is_json && !(text.empty() && named.last == "--webui-config-file")) {
            check_json(named.flag, named.value, text);
        }
        if (named.last == "--api-key-file") {
            later.key_file = named.value;
        }
    }
    return later;
}

static void check_gguf(const std::string & flag, const std::string & path, const std::string & remedy) {
    const std::string why = why_unreadable(path);
    if (!why.empty()) {
        refuse(flag, path, why);
    }
    if (!is_read_once(path) && !is_gguf(path)) {
        refuse(flag, path, "no GGUF file: " + remedy);
    }
}

// Of a folder, by making a file there: neither its mode nor who asks says whether that can be done. Empty if it can.
static std::string why_unwritable(const std::string & folder) {
    std::string name = folder + "/.pyggml-XXXXXX";
    const int   fd   = mkstemp(name.data());
    if (fd < 0) {
        return strerror(errno);
    }
    close(fd);
    unlink(name.c_str());
    return "";
}

static void warn_of_log_file(const std::string & path) {
    std::error_code ignored;
    const bool is_folder = std::filesystem::is_directory(path, ignored);
    if (!path.empty() && (is_folder || access(path.c_str(), W_OK) != 0)) {
        SRV_WRN("--log-file '%s': it cannot be written (%s), so nothing is logged to it; name another file\n",
                path.c_str(), is_folder ? "it is a folder" : strerror(errno));
    }
}

void pyggml_check_parsed_files(const common_params & params, const pyggml_named_files & named) {
    if (!named.key_file.empty() && params.api_keys.empty()) {
        refuse("--api-key-file", named.key_file,
               "there is no key in it, and without one anybody could use this server: write a key on a line of its own, "
               "or leave the flag out");
    }
    if (!params.ui_config_json.empty()) {
        check_json("--ui-config", params.ui_config_json.substr(0, 60), params.ui_config_json);
    }
    for (const auto & adapter : params.lora_adapters) {
        check_gguf("--lora", adapter.path, "convert the adapter with llama.cpp's convert_lora_to_gguf.py");
    }
    for (const auto & vector : params.control_vectors) {
        check_gguf("--control-vector", vector.fname, "make one with llama.cpp's llama-cvector-generator");
    }
    if (params.ssl_file_key.empty() != params.ssl_file_cert.empty()) {
        const bool has_key = !params.ssl_file_key.empty();
        SRV_WRN("%s '%s': connections are not encrypted without %s; name both files\n",
                has_key ? "--ssl-key-file" : "--ssl-cert-file",
                (has_key ? params.ssl_file_key : params.ssl_file_cert).c_str(),
                has_key ? "--ssl-cert-file" : "--ssl-key-file");
    }
    warn_of_log_file(named.log_file);
    const std::string why = params.slot_save_path.empty() ? "" : why_unwritable(params.slot_save_path);
    if (!why.empty()) {
        SRV_WRN("--slot-save-path '%s': nothing can be written in it (%s), so slots cannot be saved; see to its owner and "
                "mode, or name another folder\n", params.slot_save_path.c_str(), why.c_str());
    }
}
