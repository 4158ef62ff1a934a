// The two native calls per pass of the engine: decode, and then wait and sample every ready row. Engine thread, no GIL.
// Between them the device computes: what the engine does there costs nobody anything.
#include "budget.hpp"
#include "server_adapters.hpp"
#include "server_task.hpp"

#include <algorithm>

static int32_t decode(llama_context * ctx, const pyggml_batch_view & in) {
    std::vector<int32_t>        n_seq_id(in.n_tokens, 1);
    std::vector<llama_seq_id *> seq_id(in.n_tokens);
    for (int32_t i = 0; i < in.n_tokens; ++i) {
        seq_id[i] = const_cast<llama_seq_id *>(in.seq_id + i);
    }
    llama_batch batch = {};
    batch.n_tokens    = in.n_tokens;
    batch.token       = const_cast<llama_token *>(in.token);
    batch.pos         = const_cast<llama_pos *>(in.pos);
    batch.n_seq_id    = n_seq_id.data();
    batch.seq_id      = seq_id.data();
    batch.logits      = const_cast<int8_t *>(in.output);
    return llama_decode(ctx, batch);
}

static void sample_or_verify(pyggml_server & server, const pyggml_row & row, pyggml_row_result & result) {
    pyggml_task & task = *row.task;
    if (row.n_draft != int32_t(task.draft.tokens.size())) {
        throw std::logic_error("the batch has " + std::to_string(row.n_draft) + " guesses of a draft of " +
                               std::to_string(task.draft.tokens.size()) + ": drop the draft, or take all of it");
    }
    if (server.drafter) {
        server.drafter->enter(task);
    }
    if (row.n_draft == 0) {
        pyggml_task_sample(task, server.ctx, row.i_batch, row.n_past, result);
        return;
    }
    const llama_tokens tokens = server.drafter->verify(task, row.i_batch);
    if (!tokens.empty()) {
        const int32_t n_past = row.n_past + int32_t(tokens.size()) - 1;
        pyggml_task_take(task, server.ctx, row.i_batch, tokens, n_past, result);
    }
}

static void finish_row(pyggml_server & server, const pyggml_batch_view & batch, const pyggml_row & row,
                       pyggml_sampled & out, pyggml_row_result & result) {
    try {
        pyggml_budget budget(pyggml_limits_for_token()); // a grammar may have too many ways to continue
        if (row.task->embeds()) {
            pyggml_task_embed(*row.task, server.ctx, row, batch.seq_id[row.i_batch]);
            out.stop = PYGGML_STOP_EMBEDDED;
        } else {
            sample_or_verify(server, row, result);
            out.stop = row.task->stop;
        }
    } catch (const pyggml_budget_exceeded & e) {
        pyggml_give_memory_back();
        result     = {};
        out.failed = PYGGML_FAILED_LIMIT;
        result.payloads.push_back(e.what());
    } catch (const std::exception & e) {
        result     = {};
        out.failed = PYGGML_FAILED;
        result.payloads.push_back(e.what());
    }
    for (const std::string & payload : result.payloads) {
        result.views.push_back({ reinterpret_cast<const uint8_t *>(payload.data()), payload.size() });
    }
    out.tokens     = { result.tokens.data(), int32_t(result.tokens.size()) };
    out.payloads   = result.views.data();
    out.n_payloads = int32_t(result.views.size());
}

extern "C" int pyggml_step_decode(pyggml_server * server, const pyggml_batch_view * batch, int32_t n_rows,
                                  const pyggml_row * rows, int32_t * decode_status, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        if (n_rows > 0) {
            llama_set_embeddings(server->ctx, rows[0].task->embeds());
            pyggml_use_adapters(server->ctx, rows[0]);
        }
        *decode_status = decode(server->ctx, *batch);
    });
}

extern "C" int pyggml_step_sample(pyggml_server * server, const pyggml_batch_view * batch, int32_t n_rows,
                                  const pyggml_row * rows, pyggml_sampled * out, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        for (int32_t i = 0; i < n_rows; ++i) {
            out[i] = {};
        }
        const bool any = std::any_of(rows, rows + n_rows, [](const pyggml_row & r) { return r.i_batch >= 0; });
        if (any) {
            llama_synchronize(server->ctx);
        }
        if (server->drafter) {
            server->drafter->follow(*batch);
        }
        const int64_t now_us = ggml_time_us();
        server->step_results.assign(size_t(n_rows), {});
        for (int32_t i = 0; i < n_rows; ++i) {
            if (rows[i].n_prompt_tokens > 0) {
                rows[i].task->stats.n_prompt_processed += uint64_t(rows[i].n_prompt_tokens);
                rows[i].task->stats.set_prompt_last(now_us);
            }
        }
        for (int32_t i = 0; i < n_rows; ++i) {
            if (rows[i].parent != nullptr) { // before the parent has sampled anything
                rows[i].task->stats = rows[i].parent->stats;
            }
        }
        for (int32_t i = 0; i < n_rows; ++i) {
            if (rows[i].i_batch >= 0) {
                finish_row(*server, *batch, rows[i], out[i], server->step_results[i]);
            }
        }
    });
}
