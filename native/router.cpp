// The router of several models: llama-server's own, which starts its own program once for each model. Here that start
// becomes pyggml-server, so that a model's chats are parked and restored as with one model.
//
// The environment names the Python that runs it: PYGGML_ROUTER_PYTHON. A router ends with the process that started it.
#include "ggml-backend.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include <unistd.h>
#ifdef __linux__
#    include <sys/prctl.h>
#endif

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

int main(int argc, char ** argv) {
    if (std::getenv("LLAMA_SERVER_ROUTER_PORT") != nullptr) { // set by the router for what it starts
        return become_model_server(argc, argv);
    }
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
    // backends come from the folder of this program; the current folder may be anybody's
    ggml_backend_set_search_path(std::filesystem::read_symlink("/proc/self/exe").parent_path().c_str());
    return llama_server(argc, argv);
}
