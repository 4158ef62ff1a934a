// The two native calls per pass of the engine: decode, and then wait, sample every ready row and format its events. The
// second can decode the next batch too, so that the device computes while the events of this one are formatted and Python
// is told of it. Engine thread, no GIL; rows are sampled, and their events formatted, side by side on the server's row
// pool. Between the two calls the device computes: what the engine does there costs nobody anything.
#include "budget.hpp"
#include "server_adapters.hpp"
#include "server_task.hpp"

#include <regex>

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

static void check_row(const pyggml_row & row) {
    if (row.n_draft != int32_t(row.task->draft.tokens.size())) {
        throw std::logic_error("the batch has " + std::to_string(row.n_draft) + " guesses of a draft of " +
                               std::to_string(row.task->draft.tokens.size()) + ": drop the draft, or take all of it");
    }
}

// What can be done to a row while others are worked on, on any thread: it touches the row's task and reads the outputs of the batch.
static void sample_row(pyggml_server & server, const pyggml_batch_view & batch, const pyggml_row & row,
                       pyggml_row_result & result) {
    if (!row.task->format_failure.empty()) {
        throw std::runtime_error(row.task->format_failure);
    }
    if (row.task->embeds()) {
        pyggml_task_embed(*row.task, server.ctx, row, batch.seq_id[row.i_batch]);
    } else if (row.n_draft == 0) {
        pyggml_task_sample(*row.task, server.ctx, row.i_batch, row.n_past, result);
    } else {
        result.verified = server.drafter->sample(*row.task, row.i_batch);
    }
}

// What the drafter keeps of a row's guesses. Row after row on the engine thread: the drafter and the memory are shared.
static void settle_row(pyggml_server & server, const pyggml_row & row, pyggml_row_result & result) {
    if (row.n_draft > 0) {
        const llama_tokens tokens = server.drafter->settle(*row.task, std::move(result.verified));
        if (!tokens.empty()) {
            const int32_t n_past = row.n_past + int32_t(tokens.size()) - 1;
            pyggml_task_take(*row.task, server.ctx, row.i_batch, tokens, n_past, result);
        }
    }
}

// One step of work on a row. What it throws belongs to this row alone; a row that has failed is left as it is.
template <class F> static void try_row(pyggml_row_result & result, F && work) noexcept {
    if (result.failed) {
        return;
    }
    const auto fail = [&](int32_t how, const char * why) {
        result        = {};
        result.failed = how;
        result.text   = why;
    };
    try {
        pyggml_budget budget(pyggml_limits_for_token()); // a grammar may have too many ways to continue
        work();
    } catch (const pyggml_budget_exceeded & e) {
        pyggml_give_memory_back();
        fail(PYGGML_FAILED_LIMIT, e.what());
    } catch (const std::regex_error &) {
        fail(PYGGML_FAILED_LIMIT, "a trigger pattern of the grammar backtracks too much in this text: make it simpler");
    } catch (const std::exception & e) {
        fail(PYGGML_FAILED, e.what());
    } catch (...) {
        fail(PYGGML_FAILED, "an exception of unknown type was thrown");
    }
}

// The events of the rows as text, side by side: the end of a prompt is reported before the first token. What cannot be
// formatted fails its own task, in the step after this one: the next batch may already have a token of it.
static void format_rows(pyggml_server & server, const std::vector<pyggml_row> & rows) {
    auto &               results = server.step_results;
    std::vector<int32_t> ready;
    for (size_t i = 0; i < rows.size(); ++i) {
        const pyggml_task & task = *rows[i].task;
        if (results[i].failed || rows[i].i_batch < 0) {
            continue;
        }
        if (rows[i].n_prompt_tokens > 0 && task.params.stream && task.params.return_progress) {
            results[i].events.insert(results[i].events.begin(), pyggml_progress_event(task, rows[i].n_past));
        }
        if (!results[i].events.empty()) {
            ready.push_back(int32_t(i));
        }
    }
    server.row_pool->run(int32_t(ready.size()), [&](int32_t k) {
        pyggml_task &       task   = *rows[ready[k]].task;
        pyggml_row_result & result = results[ready[k]];
        try {
            for (const pyggml_token_event & event : result.events) {
                result.text += pyggml_format_event(*task.formatter, event);
            }
        } catch (const std::exception & e) {
            task.format_failure = e.what();
        } catch (...) {
            task.format_failure = "an exception of unknown type was thrown";
        }
    });
}

static void show_row(const pyggml_row & row, pyggml_row_result & result, pyggml_sampled & out) {
    out.tokens = { result.tokens.data(), int32_t(result.tokens.size()) };
    out.text   = { reinterpret_cast<const uint8_t *>(result.text.data()), result.text.size() };
    out.failed = result.failed;
    if (!result.failed) {
        out.stop = row.task->embeds() ? int32_t(PYGGML_STOP_EMBEDDED) : int32_t(row.task->stop);
    }
}

// Samples every row that has an output, side by side.
static void sample_rows(pyggml_server & server, const pyggml_batch_view & batch, const pyggml_row * rows,
                        const std::vector<int32_t> & ready) {
    auto & results = server.step_results;
    for (const int32_t i : ready) {
        try_row(results[i], [&] {
            check_row(rows[i]);
            if (server.drafter && !rows[i].task->embeds()) {
                server.drafter->enter(*rows[i].task);
            }
        });
    }
    // the first look at an output brings them into order; after that, looking writes nothing
    llama_get_sampled_token_ith(server.ctx, rows[ready[0]].i_batch);
    server.row_pool->run(int32_t(ready.size()), [&](int32_t i) {
        const pyggml_row & row = rows[ready[i]];
        try_row(results[ready[i]], [&] { sample_row(server, batch, row, results[ready[i]]); });
    });
    for (const int32_t i : ready) {
        try_row(results[i], [&] { settle_row(server, rows[i], results[i]); });
    }
}

extern "C" int pyggml_step_decode(pyggml_server * server, const pyggml_batch_view * batch, int32_t n_rows,
                                  const pyggml_row * rows, int32_t * decode_status, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        if (n_rows > 0) {
            llama_set_embeddings(server->ctx, rows[0].task->embeds());
            pyggml_use_adapters(server->ctx, rows[0]);
        }
        server->decoded = {};
        for (int32_t i = 0; i < batch->n_tokens; ++i) {
            server->decoded.add(batch->token[i], batch->pos[i], batch->seq_id[i], batch->output[i]);
        }
        server->decoded.rows.assign(rows, rows + n_rows);
        *decode_status = decode(server->ctx, *batch);
    });
}

static void count_prompts(int32_t n_rows, const pyggml_row * rows, int64_t now_us) {
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
}

// Which rows go on by themselves: each has sampled one token, has not ended, and the host samples the next one too.
static std::vector<int32_t> rows_that_go_on(const pyggml_server & server) {
    std::vector<int32_t> found;
    for (size_t i = 0; i < server.decoded.rows.size(); ++i) {
        const pyggml_row &        row    = server.decoded.rows[i];
        const pyggml_row_result & result = server.step_results[i];
        if (row.task->samples_on_device || row.n_draft > 0 || server.drafter) {
            return {};
        }
        if (!result.failed && result.tokens.size() == 1 && row.task->has_next && !row.task->embeds()) {
            found.push_back(int32_t(i));
        }
    }
    return found;
}

// Decodes the next token of these rows.
static int32_t decode_next(pyggml_server & server, const std::vector<int32_t> & going_on, pyggml_sampled * out) {
    pyggml_decoded next;
    for (const int32_t i : going_on) {
        const pyggml_row & row = server.decoded.rows[i];
        next.rows.push_back({ row.task, int32_t(next.rows.size()), 0, 0, nullptr, row.n_past + 1, row.n_pos + 1 });
        next.add(row.task->last, row.n_pos, row.task->id_slot, 1);
    }
    server.decoded       = std::move(next);
    const int32_t status = decode(server.ctx, server.decoded.view());
    for (const int32_t i : going_on) {
        out[i].goes_on = status == 0;
    }
    return status;
}

extern "C" int pyggml_step_sample(pyggml_server * server, int32_t go_on, pyggml_sampled * out, int32_t * decode_status,
                                  pyggml_error * err) {
    return pyggml_guard(err, [&] {
        const pyggml_batch_view       batch  = server->decoded.view();
        const std::vector<pyggml_row> rows   = server->decoded.rows;
        const int32_t                 n_rows = int32_t(rows.size());
        *decode_status                 = 0;
        std::vector<int32_t> ready;
        for (int32_t i = 0; i < n_rows; ++i) {
            out[i] = {};
            if (rows[i].i_batch >= 0) {
                ready.push_back(i);
            }
        }
        if (!ready.empty()) {
            llama_synchronize(server->ctx);
        }
        if (server->drafter) {
            server->drafter->follow(batch);
        }
        count_prompts(n_rows, rows.data(), ggml_time_us());
        server->step_results.clear();
        server->step_results.resize(size_t(n_rows));
        if (!ready.empty()) {
            sample_rows(*server, batch, rows.data(), ready);
        }
        const std::vector<int32_t> going_on = go_on ? rows_that_go_on(*server) : std::vector<int32_t>();
        if (!going_on.empty()) {
            *decode_status = decode_next(*server, going_on, out);
        }
        format_rows(*server, rows); // a device computes the next batch meanwhile
        for (const int32_t i : ready) {
            show_row(rows[i], server->step_results[i], out[i]);
        }
    });
}
