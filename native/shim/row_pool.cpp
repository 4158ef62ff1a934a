#include "row_pool.hpp"

#include "common.h"

#include <algorithm>

int32_t pyggml_row_pool::n_threads_for(int32_t n_slots, int32_t n_cpu_threads) {
    const int32_t n_cores = std::min(common_cpu_get_num_physical_cores(), int32_t(std::thread::hardware_concurrency()));
    return std::max(1, std::min({ n_slots, n_cpu_threads, n_cores - 1 }));
}

pyggml_row_pool::pyggml_row_pool(int32_t n_threads) {
    for (int32_t i = 1; i < n_threads; ++i) {
        workers.emplace_back([this] { serve(); });
    }
}

pyggml_row_pool::~pyggml_row_pool() {
    {
        const std::lock_guard<std::mutex> lock(mutex);
        is_over = true;
    }
    has_rows.notify_all();
    for (std::thread & worker : workers) {
        worker.join();
    }
}

void pyggml_row_pool::run(int32_t n, const std::function<void(int32_t)> & work_on) {
    if (n <= 1 || workers.empty()) {
        for (int32_t i = 0; i < n; ++i) {
            work_on(i);
        }
        return;
    }
    std::unique_lock<std::mutex> lock(mutex);
    work    = &work_on;
    n_rows  = n;
    i_next  = 0;
    n_ended = 0;
    for (int32_t i = 1; i < std::min(n, n_threads()); ++i) {
        has_rows.notify_one();
    }
    take_rows(lock);
    all_done.wait(lock, [this] { return n_ended == n_rows; });
}

void pyggml_row_pool::serve() {
    std::unique_lock<std::mutex> lock(mutex);
    while (!is_over) {
        take_rows(lock);
        has_rows.wait(lock, [this] { return is_over || i_next < n_rows; });
    }
}

// Until every row is taken. Whoever comes late finds none, and never looks at `work` of rows that have ended.
void pyggml_row_pool::take_rows(std::unique_lock<std::mutex> & lock) {
    while (i_next < n_rows) {
        const int32_t i = i_next++;
        lock.unlock();
        (*work)(i);
        lock.lock();
        if (++n_ended == n_rows) {
            all_done.notify_one();
        }
    }
}
