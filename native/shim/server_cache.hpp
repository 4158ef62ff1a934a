// What the files of the prompt cache share. Internal to the shim.
#pragma once

#include "server_cache.h"

#include "server_types.hpp"

#include <list>

struct pyggml_checkpoints {
    std::list<common_prompt_checkpoint> items;
};

struct pyggml_prompt_cache {
    server_prompt_cache cache;
};
