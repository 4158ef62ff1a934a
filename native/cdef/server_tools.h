// Declarations of native/shim/server_tools.h for cffi; the compiler compares them with that header. Meanings are told there.

typedef struct pyggml_tools     pyggml_tools;
typedef struct pyggml_tool_call pyggml_tool_call;

int  pyggml_tools_start(const pyggml_args * args, pyggml_tools ** out, pyggml_error * err);
void pyggml_tools_shutdown(pyggml_tools * tools);
void pyggml_tools_free(pyggml_tools * tools);

int pyggml_tools_list(const pyggml_tools * tools, pyggml_bytes * out, pyggml_error * err);

int  pyggml_tool_call_new(pyggml_tools * tools, const char * body, size_t size, int32_t n_headers,
                          const char * const * headers, pyggml_tool_call ** out, pyggml_error * err);
int  pyggml_tool_call_run(pyggml_tool_call * call, pyggml_error * err);
void pyggml_tool_call_stop(pyggml_tool_call * call);
void pyggml_tool_call_free(pyggml_tool_call * call);

typedef struct pyggml_tool_answer {
    int32_t       status;
    int32_t       is_stream;
    const char *  content_type;
    pyggml_view   body;
} pyggml_tool_answer;

void pyggml_tool_call_get_answer(const pyggml_tool_call * call, pyggml_tool_answer * out);
int  pyggml_tool_call_next(pyggml_tool_call * call, pyggml_bytes * out, int32_t * has_more, pyggml_error * err);
