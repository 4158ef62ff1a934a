#include "graph_copy.h"

#include <algorithm>

#include "ggml-impl.h"

namespace simdev {

GraphCopy::GraphCopy(const ggml_cgraph * original) {
    const auto n_nodes = static_cast<size_t>(original->n_nodes);
    context_.reset(ggml_init({ /*.mem_size =*/ ggml_graph_overhead_custom(n_nodes, false), /*.mem_buffer =*/ nullptr,
                               /*.no_alloc =*/ true }));
    GGML_ASSERT(context_ != nullptr && "no memory for the copy of a graph");
    graph_ = ggml_new_graph_custom(context_.get(), n_nodes, false);
    graph_->order = original->order;
    for (int i = 0; i < original->n_nodes; ++i) {
        graph_->nodes[i] = copy(original->nodes[i]);
    }
    graph_->n_nodes = original->n_nodes;
    for (int i = 0; i < original->n_nodes; ++i) {
        link(original->nodes[i], graph_->nodes[i]);
        count_use(original, i);
    }
}

ggml_tensor * GraphCopy::copy(const ggml_tensor * original) {
    const auto known = copies_.find(original);
    if (known != copies_.end()) {
        return known->second;
    }
    ggml_tensor & copied = tensors_.emplace_back(*original);
    copied.buffer = nullptr;
    copied.view_src = nullptr;
    std::fill(std::begin(copied.src), std::end(copied.src), nullptr);
    copies_[original] = &copied;
    return &copied;
}

void GraphCopy::link(const ggml_tensor * original, ggml_tensor * copied) {
    for (int i = 0; i < GGML_MAX_SRC; ++i) {
        copied->src[i] = original->src[i] != nullptr ? copy(original->src[i]) : nullptr;
    }
    copied->view_src = original->view_src != nullptr ? copy(original->view_src) : nullptr;
}

// The CPU backend fuses operations by these counts: with them, the copy runs through the code that the original would.
void GraphCopy::count_use(const ggml_cgraph * original, int i) {
    const size_t slot = ggml_hash_find_or_insert(&graph_->visited_hash_set, graph_->nodes[i]);
    graph_->use_counts[slot] = original->visited_hash_set.size > 0 ? ggml_node_get_use_count(original, i) : 0;
}

std::vector<MemoryRef> GraphCopy::touches() const {
    std::vector<MemoryRef> found;
    for (const ggml_tensor & tensor : tensors_) {
        MemoryRef memory = tensor.data != nullptr ? find_memory(tensor.data) : nullptr;
        if (memory != nullptr && std::find(found.begin(), found.end(), memory) == found.end()) {
            found.push_back(std::move(memory));
        }
    }
    return found;
}

} // namespace simdev
