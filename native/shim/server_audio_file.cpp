// What is looked at before a sound file is read: llama.cpp's reader believes the length that the file claims, and a few
// bytes may claim hours. Any thread.
#include "server_media.hpp"

// the same reader as in mtmd, which keeps it to itself
#define MINIAUDIO_IMPLEMENTATION
#define MA_NO_ENCODING
#define MA_NO_DEVICE_IO
#define MA_NO_RESOURCE_MANAGER
#define MA_NO_NODE_GRAPH
#define MA_NO_ENGINE
#define MA_NO_GENERATION
#define MA_API static
#include "miniaudio/miniaudio.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

static constexpr int64_t N_SECONDS_MAX = 2 * 60 * 60;
static constexpr int64_t N_SAMPLES_MIN = 2; // llama.cpp ends the process for one

static bool has_at(const raw_buffer & file, size_t at, const char * text) {
    const size_t size = std::strlen(text);
    return file.size() >= at + size && std::memcmp(file.data() + at, text, size) == 0;
}

bool pyggml_is_sound(const raw_buffer & file) {
    if (file.size() < 12) {
        return false;
    }
    const bool is_mp3 = has_at(file, 0, "ID3") || (file[0] == 0xff && (file[1] & 0xe0) == 0xe0);
    return is_mp3 || (has_at(file, 0, "RIFF") && has_at(file, 8, "WAVE")) || has_at(file, 0, "fLaC");
}

namespace {

// One file under its decoder, which gives samples of one channel.
class sound {
  public:
    sound(const raw_buffer & file, int sample_rate) {
        const ma_decoder_config config = ma_decoder_config_init(ma_format_f32, 1, ma_uint32(sample_rate));
        if (ma_decoder_init_memory(file.data(), file.size(), &config, &decoder) != MA_SUCCESS) {
            throw std::invalid_argument("Failed to load image or audio file: send a sound as WAV, MP3 or FLAC");
        }
    }
    ~sound() { ma_decoder_uninit(&decoder); }
    sound(const sound &)             = delete;
    sound & operator=(const sound &) = delete;

    int64_t n_claimed() {
        ma_uint64 n = 0;
        const bool is_known = ma_decoder_get_length_in_pcm_frames(&decoder, &n) == MA_SUCCESS;
        return is_known ? int64_t(std::min(n, ma_uint64(INT64_MAX))) : 0;
    }

    // How many of them there really are, up to `n_max`.
    int64_t n_readable(int64_t n_max) {
        std::array<float, 16384> samples;
        int64_t                  n = 0;
        while (n < n_max) {
            const auto n_wanted = ma_uint64(std::min(n_max - n, int64_t(samples.size())));
            ma_uint64  n_read   = 0;
            ma_decoder_read_pcm_frames(&decoder, samples.data(), n_wanted, &n_read);
            if (n_read == 0) {
                break;
            }
            n += int64_t(n_read);
        }
        return n;
    }

  private:
    ma_decoder decoder;
};

} // namespace

int64_t pyggml_n_samples(const raw_buffer & file, int sample_rate) {
    sound         sound(file, sample_rate);
    const int64_t n = sound.n_claimed();
    if (n < N_SAMPLES_MIN) {
        throw std::invalid_argument("the sound is empty: send one of at least a tenth of a second");
    }
    if (n > N_SECONDS_MAX * sample_rate) {
        throw std::invalid_argument(string_format("the sound takes %lld seconds: send one of at most %lld, or in parts",
                                                  (long long) (n / sample_rate), (long long) N_SECONDS_MAX));
    }
    const int64_t n_readable = sound.n_readable(n);
    // one that was cut off is heard as far as it goes; the rest is silence, of which nobody may order hours
    if (n > 4 * n_readable + sample_rate) {
        throw std::invalid_argument(string_format("the sound file says that it has %lld seconds, and has %lld: save it anew",
                                                  (long long) (n / sample_rate), (long long) (n_readable / sample_rate)));
    }
    return n;
}
