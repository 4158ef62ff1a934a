// What is asked of files and folders that the command line names. Internal to the shim; main thread.
#pragma once

#include "common.h"

#include <string>

// What is asked about only when the parser has ended; empty where it was not named.
struct pyggml_named_files {
    std::string key_file;
    std::string log_file;
};

// Before the parser. Throws std::invalid_argument, with a line that names the value and the remedy.
pyggml_named_files pyggml_check_named_files(int argc, char ** argv);

// After it. Throws the same, and warns of what the server does without.
void pyggml_check_parsed_files(const common_params & params, const pyggml_named_files & named);
