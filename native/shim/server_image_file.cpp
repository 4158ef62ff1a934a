// What is looked at before an image file is read: llama.cpp's reader has no bound, and a small file may be written so
// that reading it takes all of the memory, or hours. Any thread.
#include "server_media.hpp"

#include "stb/stb_image.h" // declarations; the code is in mtmd

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

static constexpr int64_t N_PIXELS_MAX     = 64 << 20;
static constexpr size_t  PNG_SURE_BYTES   = 256 << 10; // deflate makes at most 1032 times as much of it
static constexpr size_t  PNG_SLACK_BYTES  = 64 << 10;
static constexpr int     N_JPEG_SCANS_MAX = 100; // encoders make about ten

static const std::string PNG_START("\x89PNG\r\n\x1a\n", 8);
static const std::string JPEG_START("\xff\xd8\xff", 3);

static bool begins_with(const raw_buffer & file, const std::string & start) {
    return file.size() >= start.size() && std::memcmp(file.data(), start.data(), start.size()) == 0;
}

static uint32_t big_endian(const unsigned char * at) {
    return uint32_t(at[0]) << 24 | uint32_t(at[1]) << 16 | uint32_t(at[2]) << 8 | uint32_t(at[3]);
}

// The compressed pixels of a PNG file, and whether they have zlib's header (Apple's own kind has none).
static std::string png_data(const raw_buffer & file, bool & has_header) {
    std::string data;
    size_t      at = PNG_START.size();
    has_header     = true;
    while (at + 8 <= file.size()) {
        const size_t size = big_endian(file.data() + at);
        const auto * kind = reinterpret_cast<const char *>(file.data() + at + 4);
        if (size > file.size() - at - 8) {
            break;
        }
        if (std::memcmp(kind, "IDAT", 4) == 0) {
            data.append(kind + 4, size);
        }
        has_header = has_header && std::memcmp(kind, "CgBI", 4) != 0;
        at += std::min(size + 12, file.size() - at);
    }
    return data;
}

// Throws where the pixels unpack to more than an image of this size has.
static void check_png(const raw_buffer & file, int64_t n_pixels) {
    bool              has_header = true;
    const std::string data       = png_data(file, has_header);
    if (data.size() <= PNG_SURE_BYTES) {
        return;
    }
    const bool   is_deep = stbi_is_16_bit_from_memory(file.data(), int(file.size())) != 0;
    const size_t n_most  = size_t(n_pixels) * (is_deep ? 8 : 4) * 5 / 4 + PNG_SLACK_BYTES;
    const int    n_in    = int(data.size());
    char *       out     = static_cast<char *>(malloc(n_most)); // not counted by the budget: it is bounded here
    const auto   unpack  = has_header ? stbi_zlib_decode_buffer : stbi_zlib_decode_noheader_buffer;
    const int    n_out   = out == nullptr ? -1 : unpack(out, int(n_most), data.data(), n_in);
    free(out);
    if (n_out < 0) {
        throw std::invalid_argument("the image's data is damaged, or far larger than the image: save it anew");
    }
}

// Throws where decoding would begin anew far more often than any encoder asks for.
static void check_jpeg(const raw_buffer & file) {
    int n_scans = 0;
    for (size_t i = 0; i + 1 < file.size(); ++i) {
        n_scans += file[i] == 0xff && file[i + 1] == 0xda;
    }
    if (n_scans > N_JPEG_SCANS_MAX) {
        throw std::invalid_argument("the JPEG image has " + std::to_string(n_scans) + " scans: save it anew");
    }
}

int64_t pyggml_n_pixels(const raw_buffer & file) {
    int width = 0, height = 0, n_channels = 0;
    if (file.size() > INT32_MAX || !stbi_info_from_memory(file.data(), int(file.size()), &width, &height, &n_channels)) {
        throw std::invalid_argument("Failed to load image or audio file: send an image as JPEG, PNG, BMP or GIF");
    }
    const int64_t n_pixels = int64_t(width) * height;
    if (n_pixels > N_PIXELS_MAX) {
        throw std::invalid_argument(string_format("the image has %d x %d pixels: send one of at most %d million", width,
                                                  height, int(N_PIXELS_MAX / 1000000)));
    }
    return n_pixels;
}

void pyggml_check_image(const raw_buffer & file) {
    if (begins_with(file, PNG_START)) {
        check_png(file, pyggml_n_pixels(file));
    } else if (begins_with(file, JPEG_START)) {
        check_jpeg(file);
    }
}
