// A few threads that work on the rows of a step side by side. Internal to the shim.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

// One engine's threads. They sleep between two steps; the thread that calls `run` works with them.
class pyggml_row_pool {
  public:
    // The calling thread is one of `n_threads`; 1 starts no other.
    explicit pyggml_row_pool(int32_t n_threads);
    ~pyggml_row_pool();
    pyggml_row_pool(const pyggml_row_pool &)             = delete;
    pyggml_row_pool & operator=(const pyggml_row_pool &) = delete;

    // How many threads suit a server: no more than its slots, than `-t` allows, and than the physical cores but one,
    // which is left to the threads that write to clients.
    static int32_t n_threads_for(int32_t n_slots, int32_t n_cpu_threads);

    int32_t n_threads() const { return int32_t(workers.size()) + 1; }

    // Calls work(i) once for each i below n and returns when all have ended. `work` throws nothing. One call at a time.
    void run(int32_t n, const std::function<void(int32_t)> & work);

  private:
    void serve();
    void take_rows(std::unique_lock<std::mutex> & lock);

    std::vector<std::thread>            workers;
    std::mutex                          mutex;
    std::condition_variable             has_rows;
    std::condition_variable             all_done;
    const std::function<void(int32_t)> * work    = nullptr; // of the rows under way
    int32_t                             n_rows   = 0;
    int32_t                             i_next   = 0; // the first row that nobody has taken
    int32_t                             n_ended  = 0;
    bool                                is_over  = false;
};
