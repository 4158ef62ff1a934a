// A deep copy of a graph, taken when the graph is issued.
//
// The scheduler changes its graphs and tensors as soon as graph_compute returns, and a stream executes late: shapes,
// operations, parameters and links are copied, data is referenced by address. Tensors outside the graph keep no links
// of their own, and no tensor keeps its buffer: both may be gone when the copy runs.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ggml-cpp.h"
#include "memory.h"

namespace simdev {

class GraphCopy {
public:
    explicit GraphCopy(const ggml_cgraph * original);
    GraphCopy(const GraphCopy &) = delete;
    GraphCopy & operator=(const GraphCopy &) = delete;

    ggml_cgraph *          graph() { return graph_; }
    // Each allocation of ours that a tensor of the graph lies in, once.
    std::vector<MemoryRef> touches() const;

private:
    ggml_tensor * copy(const ggml_tensor * original);
    void          link(const ggml_tensor * original, ggml_tensor * copied);
    void          count_use(const ggml_cgraph * original, int i);

    std::deque<ggml_tensor>                                tensors_; // addresses stay
    std::unordered_map<const ggml_tensor *, ggml_tensor *> copies_;
    ggml_context_ptr                                       context_;
    ggml_cgraph *                                          graph_;
};

} // namespace simdev
