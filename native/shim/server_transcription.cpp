// Transcriptions: their bodies to chats about a sound, through llama-server's own conversion. Any thread.
#include "server_media.hpp"
#include "server_translate.hpp"

#include "server-chat.h"

using json = common_json;

json pyggml_transcription_to_completion(const pyggml_server & server, const std::string & body, const raw_buffer * file,
                                        std::vector<raw_buffer> & files) {
    if (!pyggml_hears(server)) {
        throw pyggml_request_refused("The current model does not support audio input.", ERROR_TYPE_NOT_SUPPORTED);
    }
    std::map<std::string, uploaded_file> uploaded;
    if (file != nullptr) {
        uploaded["file"].data = *file;
    }
    json chat = convert_transcriptions_to_chatcmpl(json::parse(body), server.chat_params.tmpls.get(), uploaded, files);
    return oaicompat_chat_params_parse(chat, server.chat_params, files);
}
