// The bytes that carry the end of a task from the engine to the request, which formats it.
//
// One flat layout, written and read only here, by the same build: a kind, then the fields in the order of `visit`.
#pragma once

#include "server_types.hpp"

#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

enum class payload_kind : uint8_t { final = 1, embedding = 2 };

struct payload_writer {
    std::string out;

    template <class T> void field(const T & v) {
        static_assert(std::is_trivially_copyable_v<T>, "plain data only");
        out.append(reinterpret_cast<const char *>(&v), sizeof(v));
    }
    void field(const std::string & s) {
        field(uint64_t(s.size()));
        out.append(s);
    }
    void field(const llama_tokens & v) {
        field(uint64_t(v.size()));
        out.append(reinterpret_cast<const char *>(v.data()), v.size() * sizeof(llama_token));
    }
    void field(const std::vector<std::vector<float>> & rows) {
        field(uint64_t(rows.size()));
        for (const auto & row : rows) {
            field(uint64_t(row.size()));
            out.append(reinterpret_cast<const char *>(row.data()), row.size() * sizeof(float));
        }
    }
    void field(const completion_token_output & t) {
        field(t.tok);
        field(t.prob);
        field(t.text_to_send);
        field(uint64_t(t.probs.size()));
        for (const auto & p : t.probs) {
            field(p.tok);
            field(p.prob);
            field(p.txt);
        }
    }
    void field(const std::vector<completion_token_output> & v) {
        field(uint64_t(v.size()));
        for (const auto & t : v) {
            field(t);
        }
    }
};

struct payload_reader {
    const uint8_t * p;
    const uint8_t * end;

    const uint8_t * take(size_t n) {
        if (size_t(end - p) < n) {
            throw std::invalid_argument("payload is cut short");
        }
        const uint8_t * at = p;
        p += n;
        return at;
    }
    template <class T> void field(T & v) {
        static_assert(std::is_trivially_copyable_v<T>, "plain data only");
        memcpy(&v, take(sizeof(v)), sizeof(v));
    }
    void field(std::string & s) {
        const size_t n = count(1);
        s.assign(reinterpret_cast<const char *>(take(n)), n);
    }
    void field(llama_tokens & v) {
        const size_t n = count(sizeof(llama_token));
        v.resize(n);
        if (n > 0) {
            memcpy(v.data(), take(n * sizeof(llama_token)), n * sizeof(llama_token));
        }
    }
    void field(std::vector<std::vector<float>> & rows) {
        rows.resize(count(sizeof(uint64_t)));
        for (auto & row : rows) {
            row.resize(count(sizeof(float)));
            if (!row.empty()) {
                memcpy(row.data(), take(row.size() * sizeof(float)), row.size() * sizeof(float));
            }
        }
    }
    void field(completion_token_output & t) {
        field(t.tok);
        field(t.prob);
        field(t.text_to_send);
        t.probs.resize(count(1));
        for (auto & p : t.probs) {
            field(p.tok);
            field(p.prob);
            field(p.txt);
        }
    }
    void field(std::vector<completion_token_output> & v) {
        v.resize(count(1));
        for (auto & t : v) {
            field(t);
        }
    }

  private:
    // A length that the rest of the payload can hold, each element taking at least `item_bytes`.
    size_t count(size_t item_bytes) {
        uint64_t n = 0;
        field(n);
        if (n > size_t(end - p) / item_bytes) {
            throw std::invalid_argument("payload is cut short");
        }
        return size_t(n);
    }
};

// What the end of a task says.
struct final_payload {
    std::string                          content;
    llama_tokens                         tokens;
    int32_t                              id_slot               = -1;
    int32_t                              n_decoded             = 0;
    int32_t                              n_prompt_tokens       = 0;
    int32_t                              n_prompt_tokens_cache = 0;
    int32_t                              n_tokens_cached       = 0;
    server_slot_stats                    stats                 = {};
    bool                                 truncated             = false;
    bool                                 has_new_line          = false;
    stop_type                            stop                  = STOP_TYPE_NONE;
    std::string                          stopping_word;
    std::vector<completion_token_output> probs;

    template <class V> void visit(V & v) {
        v.field(content);
        v.field(tokens);
        v.field(id_slot);
        v.field(n_decoded);
        v.field(n_prompt_tokens);
        v.field(n_prompt_tokens_cache);
        v.field(n_tokens_cached);
        v.field(stats);
        v.field(truncated);
        v.field(has_new_line);
        v.field(stop);
        v.field(stopping_word);
        v.field(probs);
    }
};

// What the end of an embedding or reranking task says.
struct embedding_payload {
    int32_t                         n_tokens = 0;
    float                           score    = 0.0f;
    std::vector<std::vector<float>> rows;

    template <class V> void visit(V & v) {
        v.field(n_tokens);
        v.field(score);
        v.field(rows);
    }
};

template <class P> std::string payload_write(payload_kind kind, P & payload) {
    payload_writer w;
    w.field(kind);
    payload.visit(w);
    return std::move(w.out);
}
